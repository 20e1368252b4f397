package cli

import (
	"slices"

	"github.com/spf13/pflag"

	"github.com/spool-run/spool"
)

// isolationFlags are the flags that isolate a run.
type isolationFlags struct {
	profile   string
	writable  []string
	protected []string
	readable  []string
	hidden    []string
	hosts     []string
	denied    []string
	ask       bool
	secrets   []string
	guarantee []string
	waive     []string
	mechanism string
}

// add defines the flags.
func (f *isolationFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.profile, "isolate", "", "isolate the run: `profile` none, read-only, workspace-write, no-network, net-allow or strict")
	flags.StringArrayVar(&f.writable, "writable", nil, "`directory` that an isolated run may write to (default: the working directory, none with read-only)")
	flags.StringArrayVar(&f.protected, "protect", nil, "`path` below the writable directories that stays as it is, such as .git")
	flags.StringArrayVar(&f.readable, "readable", nil, "`path` that a run with --isolate strict may read beside the system's programs and what is writable")
	flags.StringArrayVar(&f.hidden, "hide", nil, "`path` that an isolated run can neither read nor write")
	flags.StringArrayVar(&f.hosts, "allow-net", nil, "`host` that a run with --isolate net-allow may connect to, such as example.org, *.example.org or example.org:443")
	flags.StringArrayVar(&f.denied, "deny-net", nil, "`host` that it may not connect to, although --allow-net names it")
	flags.BoolVar(&f.ask, "ask-net", false, "have the run ask about other hosts; \"spool answer\" answers")
	flags.StringArrayVar(&f.secrets, "net-secret", nil, "header that requests for a host get, with the file that has its value: `HOST:HEADER=FILE`")
	f.addGuarantees(flags)
}

// addGuarantees defines the flags that choose what is guaranteed.
func (f *isolationFlags) addGuarantees(flags *pflag.FlagSet) {
	flags.StringArrayVar(&f.guarantee, "guarantee", nil, "`letter` of a guarantee to require beyond the profile's, such as N0")
	flags.StringArrayVar(&f.waive, "waive", nil, "`letter` of a guarantee that the isolated run may lack, such as I")
	flags.StringVar(&f.mechanism, "isolate-with", "", "the only `mechanism` to isolate with: namespaces, landlock or gvisor")
}

// isolation returns the request, nil if there is none.
func (f *isolationFlags) isolation() (*spool.Isolation, error) {
	if f.profile == "" {
		for _, flag := range []struct {
			name string
			set  bool
		}{
			{"writable", len(f.writable) > 0}, {"protect", len(f.protected) > 0}, {"readable", len(f.readable) > 0}, {"hide", len(f.hidden) > 0}, {"allow-net", len(f.hosts) > 0},
			{"deny-net", len(f.denied) > 0}, {"ask-net", f.ask}, {"net-secret", len(f.secrets) > 0},
			{"guarantee", len(f.guarantee) > 0}, {"waive", len(f.waive) > 0}, {"isolate-with", f.mechanism != ""},
		} {
			if flag.set {
				return nil, usageErrorf("--%s needs --isolate", flag.name)
			}
		}
		return nil, nil
	}
	return &spool.Isolation{Profile: f.profile, Writable: f.writable, Protected: f.protected, Readable: f.readable, Hidden: f.hidden,
		Hosts: f.hosts, DeniedHosts: f.denied, AskHosts: f.ask, Secrets: f.secrets, Guarantees: f.guarantee, Waive: f.waive, Mechanism: f.mechanism}, nil
}

// isolationLike returns a request for what a run has.
func isolationLike(info *spool.Info) *spool.Isolation {
	if info.Isolation == nil || info.Isolation.Profile == "none" {
		return nil
	}
	i := *info.Isolation
	i.Guarantees = nil
	for _, g := range info.Isolation.Guarantees {
		if !slices.Contains(i.Waive, g) {
			i.Guarantees = append(i.Guarantees, g)
		}
	}
	if len(i.Writable) == 0 && i.Profile != "read-only" {
		i.Writable = []string{info.Cwd} // also in another working directory
	}
	return &i
}
