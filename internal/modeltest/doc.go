// Package modeltest is a scripted language model: a loopback server that
// implements the parts of the OpenAI Responses, OpenAI Chat Completions and
// Anthropic Messages APIs that coding agents use, streaming or not, and answers
// from a script.
//
// A script consists of steps and works with every dialect: it sees a
// conversation in one form, and steps such as [Shell] call the tool that the
// agent offers.
//
//	m, err := modeltest.New(modeltest.ByTurn(
//		modeltest.Shell("echo hello"),
//		modeltest.Say("All done."),
//	))
//
// [InOrder] plays one step per request and reports any other request as an
// error. [ByTurn] plays step n to a conversation with n answers, so that an
// agent may retry, resume and ask for titles.
package modeltest
