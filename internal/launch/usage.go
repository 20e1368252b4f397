package launch

import "time"

// Usage is what a process tree uses now.
type Usage struct {
	Processes     int
	CPU           time.Duration // of the live processes, and of their children that ended
	Memory        int64         // bytes
	Read, Written int64         // bytes from and to disks, by live processes
	Source        string        // SourceGroup or SourceProc
}

// The values of [Usage.Source].
const (
	SourceGroup = "cgroup" // a control group knows the processes of the tree
	SourceProc  = "proc"   // they were searched for in /proc
)
