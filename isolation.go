package spool

// Isolation says what a run must be kept from. In a [Spec] it is a request: a
// start either proves every guarantee that it asks for on this machine, or is
// refused with [ErrUnsupported] and what to do about it. A run is never isolated
// less than was asked for. In an [Info] it is what the run has.
//
// The guarantees are
//
//	W   writes only below the writable paths, and to a private /tmp
//	P   no writes to the protected paths
//	R   reads only below the readable and writable paths, and of the system's programs
//	N0  no network of any kind
//	NP  only connections that a proxy allows by the name of the host
//	I   no other process can be seen, signalled or traced
//	K   a kill leaves no process
//	S   the end of Spool leaves no process
//	M   a limit of memory
//	C   a limit of processor time
//	T   a limit of processes
//	U   not root outside of the run
//	H   few system calls
type Isolation struct {
	// Profile names a set of guarantees:
	//
	//	none             the run is not isolated
	//	read-only        W I K S T, without writable paths
	//	workspace-write  W P I K S T
	//	no-network       W P I K S T N0
	//	net-allow        W P I K S T NP
	//	strict           all of them but NP
	//
	// Empty means none.
	Profile string `json:"profile,omitempty"`
	// Writable are directories below which the run may write, or files;
	// relative ones are below the working directory. An agent adds where it
	// keeps its configuration and sessions. Empty means the working directory,
	// except for read-only, which has none.
	Writable []string `json:"writable,omitempty"`
	// Protected are paths below writable ones that stay read-only, such as
	// .git; relative ones are below each writable path. What does not exist
	// cannot be created either.
	Protected []string `json:"protected,omitempty"`
	// Readable are paths that the run may read in addition to the system's
	// programs and the writable paths, where R is asked for.
	Readable []string `json:"readable,omitempty"`
	// Bare leaves nothing to see but the readable and writable paths: no other
	// path exists, and the system's programs only if they are named. It needs R.
	Bare bool `json:"bare,omitempty"`
	// Hidden are paths that the run can neither read nor write.
	Hidden []string `json:"hidden,omitempty"`
	// HostTmp leaves /tmp and /var/tmp as they are on the machine: read-only
	// where they are not writable. Otherwise the run has empty ones of its own.
	HostTmp bool `json:"host_tmp,omitempty"`
	// Hosts are those that NP allows: example.org, *.example.org for the
	// hosts below it, an address or a network such as 10.0.0.0/8, each with
	// :443 behind it for one port. A name leads to an address that is not
	// public, such as a private one, only if that address is among them, too.
	Hosts []string `json:"hosts,omitempty"`
	// DeniedHosts are not allowed although Hosts has them.
	DeniedHosts []string `json:"denied_hosts,omitempty"`
	// AskHosts asks about a host that is in neither list: the run appends an
	// [Ask] of kind network, and the connection waits for the answer.
	AskHosts bool `json:"ask_hosts,omitempty"`
	// Proxy is the address of a proxy on this machine, such as
	// 127.0.0.1:3128. With NP the run reaches it, and nothing else, at another
	// address, which takes its place in the variables of the run; the proxy
	// decides about hosts, so that there are no other rules about them.
	Proxy string `json:"proxy,omitempty"`
	// Secrets are headers that the proxy adds to requests for a host, so that
	// the run never has them: "api.example.org:Authorization=FILE", with the
	// file that has the value, on the machine of the run, which cannot read
	// it. The run asks for http://HOST, and the proxy sends the request on as
	// https://HOST. It cannot add a header to what the run encrypts itself.
	Secrets []string `json:"secrets,omitempty"`
	// Guarantees are required in addition to those of the profile. In an
	// Info they are all that the run has.
	Guarantees []string `json:"guarantees,omitempty"`
	// Waive are guarantees of the profile that the run may lack. One that
	// the machine can give is given all the same.
	Waive []string `json:"waive,omitempty"`
	// Mechanism is the only one to use: "namespaces", "landlock" or "gvisor". Empty
	// means the cheapest that gives every guarantee. In an Info it is the
	// one that was used.
	Mechanism string `json:"mechanism,omitempty"`
}
