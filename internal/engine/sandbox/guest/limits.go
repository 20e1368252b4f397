package guest

// Bounds of the messages between an interpreter and its host.
const (
	// MaxAskBytes bounds the payload of an ask.
	MaxAskBytes = 8 << 20
	// MaxAnswerBytes bounds an encoded [Reply].
	MaxAnswerBytes = 64 << 20
)
