package proxy

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
)

// These three benchmarks are meant to be compared: the cryptography alone, a
// verification with it, and a whole request through the handler.

func BenchmarkRSAVerify(b *testing.B) {
	token := testToken("k1", testIssuer)
	i := strings.LastIndexByte(token, '.')
	sig, err := base64.RawURLEncoding.DecodeString(token[i+1:])
	if err != nil {
		b.Fatal(err)
	}
	sum := sha256.Sum256([]byte(token[:i]))
	key := &testKey().PublicKey
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], sig) != nil {
				b.Error("not verified")
			}
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	token := testToken("k1", testIssuer)
	h := Handler(http.NotFoundHandler(), &Options{HTTPClient: &http.Client{Transport: publishing("k1")}}).(*handler)
	r := testRequest(token)
	f, err := readForwarded(r.Header)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := h.verify(r, f); err != nil {
				b.Error(err)
			}
		}
	})
}

func BenchmarkHandler(b *testing.B) {
	token := testToken("k1", testIssuer)
	h := Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
		&Options{HTTPClient: &http.Client{Transport: publishing("k1")},
			Invalid: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { b.Error(ErrorFromContext(r.Context())) })})
	r := testRequest(token)
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			h.ServeHTTP(discardWriter{}, r)
		}
	})
}
