package record

// Labels of a run that a server sets.
const (
	// AccessLabels is the prefix of the labels that say who may use a run.
	AccessLabels = "spool.access."
	// LabelSubject is the label with the name of the subject that a run on a
	// shared server belongs to. A run of the owner does not have it.
	LabelSubject = AccessLabels + "subject"
	// LabelAudit is the label of an audit log, with the name of the server.
	LabelAudit = AccessLabels + "audit"
)
