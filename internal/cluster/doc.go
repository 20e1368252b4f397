// Package cluster makes one backend of many machines. Any node answers for any run:
// it finds out which node has the run and asks that one, over the wire that every
// client uses.
//
// A run never moves. Its log has one writer, on one machine, for ever; what a run did
// only that machine knows. The store of the cluster holds facts about who: which nodes
// there are, and which node has which run. Everything in it has a second copy, on the
// disk of a node.
//
// A node holds one lease, not one for each run. Renewing a lease and fencing its node
// are writes of one fact that name the revision they replace, so that exactly one of
// them happens. Only after a node was fenced do others say that they do not know how
// its runs ended, and they say no more than that.
package cluster
