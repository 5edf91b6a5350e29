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

// doorToken returns the token of the folder, which all processes that share its sessions
// have in common. It creates one if there is none that is this user's alone.
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

// onlyHosts refuses names that a page could have pointed to this machine: with the
// token in its own place a page has no use for it, but what is served here is
// none of its business.
func onlyHosts(names string, next http.Handler) http.Handler {
	allowed := append(strings.Split(strings.ToLower(names), ","), "localhost")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		host = strings.ToLower(strings.Trim(host, "[]"))
		if host == "" || net.ParseIP(host) == nil && !slices.Contains(allowed, host) {
			http.Error(w, fmt.Sprintf("this service has no name %q; -host adds one", host), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
