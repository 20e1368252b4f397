package httpapi

import "net/http"

// Configure has an [http.Server] offer HTTP/2 beside HTTP/1.1: with TLS if the client
// asks for it, and without to clients that know of it in advance, such as proxies. Many
// streams then share one connection. WebSockets are of HTTP/1.1, for which clients ask. It
// sets the limit of headers, too.
func (s *Server) Configure(h *http.Server) {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetHTTP2(true)
	p.SetUnencryptedHTTP2(true)
	h.Protocols = p
	h.MaxHeaderBytes = s.limits.Headers
	h.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: s.limits.StreamsOfConn}
}
