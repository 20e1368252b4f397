// Package modeltest is a scripted language model: a server on loopback that
// speaks as much of the OpenAI Responses, OpenAI Chat Completions and Anthropic
// Messages APIs as coding agents use, streaming or not, and answers from a
// script instead of a model.
//
// A script is made of steps, and one script drives every dialect: a
// conversation is given to it in one form, and calls such as [Shell] are
// written for whichever tool the agent offers.
//
//	m, err := modeltest.New(modeltest.ByTurn(
//		modeltest.Shell("echo hello"),
//		modeltest.Say("All done."),
//	))
//
// [InOrder] plays one step per request and holds the agent to it. [ByTurn]
// plays step n to a conversation with n answers in it already, so that an
// agent may try again, resume and ask for titles without losing the thread.
package modeltest
