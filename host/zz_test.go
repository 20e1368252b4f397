package host_test

import "github.com/spool-run/spool/host"

func outOfDescriptors(host.Options) error { return nil }
func weigh(host.Options) error            { return nil }
