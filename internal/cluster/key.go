package cluster

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"net"
	"strings"
	"time"
)

// serverName is the name in the certificates of all nodes.
const serverName = "node.spool.cluster"

// tokenPrefix begins a token with which a node joins.
const tokenPrefix = "spoolcluster1."

// keyBytes is the size of a key.
const keyBytes = 32

// Key is the secret of a cluster. A process that has it is a node: the authority that signs
// the certificates of nodes is derived from it, so that nodes need nothing else to
// know each other.
type Key [keyBytes]byte

// NewKey makes the key of a new cluster.
func NewKey() Key {
	var k Key
	rand.Read(k[:]) // never fails
	return k
}

// derive returns 32 bytes for one purpose.
func (k Key) derive(purpose string) ([]byte, error) {
	return hkdf.Key(sha256.New, k[:], nil, "spool cluster "+purpose, ed25519.SeedSize)
}

// ID names the cluster of the key, which it does not tell.
func (k Key) ID() string {
	b, err := k.derive("id")
	if err != nil { // 32 bytes are always there
		return ""
	}
	return fmt.Sprintf("%x", b[:8])
}

// aead returns the cipher of specs that wait in the store.
func (k Key) aead() (cipher.AEAD, error) {
	secret, err := k.derive("queue")
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// seal encrypts a text that belongs to what is named.
func (k Key) seal(plain []byte, of string) ([]byte, error) {
	c, err := k.aead()
	if err != nil {
		return nil, err
	}
	return c.Seal(nil, nil, plain, []byte(of)), nil
}

// unseal decrypts what seal returned.
func (k Key) unseal(sealed []byte, of string) ([]byte, error) {
	c, err := k.aead()
	if err != nil {
		return nil, err
	}
	return c.Open(nil, nil, sealed, []byte(of))
}

// When certificates are valid: always, for the clocks of nodes may be wrong by any time.
// A process with the key can make others.
var (
	validFrom = time.Unix(0, 0)
	validTo   = time.Date(2120, 1, 1, 0, 0, 0, 0, time.UTC)
)

// authority returns the authority of the cluster.
func (k Key) authority() (*x509.Certificate, ed25519.PrivateKey, error) {
	seed, err := k.derive("authority")
	if err != nil {
		return nil, nil, err
	}
	private := ed25519.NewKeyFromSeed(seed)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "spool cluster " + k.ID()},
		NotBefore: validFrom, NotAfter: validTo,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return nil, nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return cert, private, err
}

// TLS returns the configuration of connections between nodes, for both ends, with a
// certificate for the node. Each end must have a certificate of the cluster.
func (k Key) TLS(node string) (*tls.Config, error) {
	ca, caKey, err := k.authority()
	if err != nil {
		return nil, fmt.Errorf("make the authority of the cluster: %w", err)
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	// The certificate is made anew with every start.
	leaf := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: node}, DNSNames: []string{serverName},
		NotBefore: validFrom, NotAfter: validTo,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, public, caKey)
	if err != nil {
		return nil, fmt.Errorf("make the certificate of the node: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}},
		RootCAs:      pool, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, ServerName: serverName, MinVersion: tls.VersionTLS13,
		DynamicRecordSizingDisabled: true, // logs are large, and the network is fast
	}, nil
}

// Membership is what a machine must know to be a node: the key of the cluster and the
// addresses of its control nodes, HOST:PORT. Without any the node is the whole cluster.
type Membership struct {
	Key     Key      `json:"-"`
	Control []string `json:"control,omitempty"`
	// Generation is that of the store that the cluster had before it got its present
	// control nodes, and Nodes are those that must say again what they have. They are
	// empty for a cluster that still has its first store.
	Generation uint64   `json:"generation,omitempty"`
	Nodes      []string `json:"nodes,omitempty"`
}

// token is the JSON in a token.
type token struct {
	Key        []byte   `json:"key"`
	Control    []string `json:"control,omitempty"`
	Generation uint64   `json:"generation,omitempty"`
	Nodes      []string `json:"nodes,omitempty"`
}

// Token returns the text with which another machine joins.
func (m *Membership) Token() string {
	b, err := json.Marshal(token{m.Key[:], m.Control, m.Generation, m.Nodes})
	if err != nil { // bytes and strings always encode
		panic(err)
	}
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(b)
}

// ParseToken reads what [Membership.Token] returned.
func ParseToken(text string) (Membership, error) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(text), tokenPrefix)
	b, err := base64.RawURLEncoding.DecodeString(rest)
	var t token
	if err == nil {
		err = json.Unmarshal(b, &t)
	}
	if !ok || err != nil || len(t.Key) != keyBytes {
		return Membership{}, fmt.Errorf("this is no token of a cluster: it begins with %s", tokenPrefix)
	}
	if err := CheckControl(t.Control); err != nil {
		return Membership{}, err
	}
	return Membership{Key: Key(t.Key), Control: t.Control, Generation: t.Generation, Nodes: t.Nodes}, nil
}

// CheckControl returns an error for addresses that no control nodes can have.
func CheckControl(addresses []string) error {
	seen := make(map[string]bool)
	for _, a := range addresses {
		if _, err := portAt(a, 0); err != nil {
			return err
		}
		if seen[a] {
			return fmt.Errorf("the control node %s is named twice", a)
		}
		seen[a] = true
	}
	if n := len(addresses); n > maxControl || n > 0 && n%2 == 0 {
		return fmt.Errorf("%d control nodes: use 1, 3 or %d, so that more than half of them is a clear majority", n, maxControl)
	}
	return nil
}

// maxControl is how many control nodes there may be. Each fact is written to three.
const maxControl = 5

// Ports of a control node, relative to the one of its address, at which nodes connect.
const (
	portClients = 1 // NATS, for nodes that are no control nodes
	portRoutes  = 2 // NATS, among control nodes
)

// portAt returns an address with a port that is so much higher.
func portAt(address string, more int) (string, error) {
	host, port, err := net.SplitHostPort(address)
	var n int
	if err == nil {
		n, err = net.LookupPort("tcp", port)
	}
	if err != nil || host == "" || n == 0 || n+portRoutes > 65535 {
		return "", fmt.Errorf("address %q of a node: use HOST:PORT, with a port from 1 to %d", address, 65535-portRoutes)
	}
	return net.JoinHostPort(host, fmt.Sprint(n+more)), nil
}

// ClientAddress is where a control node serves the store to other nodes.
func ClientAddress(control string) (string, error) { return portAt(control, portClients) }

// RouteAddress is where control nodes connect with each other.
func RouteAddress(control string) (string, error) { return portAt(control, portRoutes) }
