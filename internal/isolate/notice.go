package isolate

// The codes of the notices about the network of a run.
const (
	NoticeHost    = "network_host"    // the first connection to a host and port, or the first refusal
	NoticeTraffic = "network_traffic" // at the end: what went to each host and port
)

// AskNetwork is the kind of an [spool.Ask] about a host. Its data is an
// [egress.Target].
const AskNetwork = "network"
