package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/go-vercel/sandbox/durable/internal/mutual"
)

// machineAddr is the address of this machine in the network of an emulator's
// sandboxes.
const machineAddr = "10.0.2.2"

// doorToken returns the folder's token, which all its processes share. It creates a token if
// there is none that only this user can read.
func doorToken(dir string) (string, error) {
	file := filepath.Join(dir, "token")
	info, err := os.Lstat(file)
	switch {
	case err == nil && info.Mode().IsRegular() && (info.Mode().Perm()&0o077 == 0 || runtime.GOOS == "windows"):
		data, err := os.ReadFile(file)
		if token := strings.TrimSpace(string(data)); err != nil || token != "" {
			return token, err
		}
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return "", err
	}
	token := rand.Text()
	return token, mutual.WriteKey(file, []byte(token+"\n"))
}

// onlyHosts refuses requests for unknown host names. A web page could point its own name to
// this machine; without the token it could do nothing, but it has no business here.
func onlyHosts(names string, next http.Handler) http.Handler {
	allowed := append(strings.Split(strings.ToLower(names), ","), "localhost")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		host = strings.ToLower(strings.Trim(host, "[]"))
		if host == "" || net.ParseIP(host) == nil && !slices.Contains(allowed, host) {
			http.Error(w, fmt.Sprintf("unknown host name %q; add it with -host", host), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
