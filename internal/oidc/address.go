package oidc

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strings"

	"github.com/go-vercel/sandbox/internal/redact"
)

const (
	// DefaultBaseURL is the default address of the API.
	DefaultBaseURL = "https://vercel.com/api"
	// BaseURLVariable is the environment variable for another address.
	BaseURLVariable = "VERCEL_SANDBOX_BASE_URL"
)

// Address parses and checks the address of the API. An unencrypted address must be on this machine,
// unless allowHTTP is set.
func Address(base string, allowHTTP bool) (*url.URL, error) {
	u, err := url.Parse(strings.TrimRight(base, "/"))
	switch {
	case err != nil:
		return nil, errors.New("it is not an http or https address")
	case u.Scheme == "" && bareHost.MatchString(base):
		return nil, fmt.Errorf("%q is not an http or https address; is https://%s meant?", base, base)
	case u.Scheme != "https" && u.Scheme != "http" || u.Host == "":
		return nil, fmt.Errorf("%q is not an http or https address", redact.URL(base))
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("%q has more than a host and a path", redact.URL(base))
	case u.Scheme == "http" && !allowHTTP && !onThisMachine(u.Hostname()):
		return nil, fmt.Errorf("%q is not encrypted, and would be sent credentials in the clear; use https, or set AllowHTTP", redact.URL(base))
	}
	return u, nil
}

// AtVercel reports whether an address is one of Vercel's.
func AtVercel(u *url.URL) bool {
	return u.Hostname() == "vercel.com" || strings.HasSuffix(u.Hostname(), ".vercel.com")
}

// bareHost matches an address without a scheme and without possible secrets.
var bareHost = regexp.MustCompile(`^[a-z0-9.-]+(/[a-z0-9./-]*)?$`)

// onThisMachine reports whether host denotes this machine, independently of name servers.
func onThisMachine(host string) bool {
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback() || host == "localhost"
}
