package sandbox

import (
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"strings"

	"github.com/go-vercel/sandbox/internal/redact"
)

// defaultBaseURL is the address of the API unless ClientOptions or the
// environment names another.
const defaultBaseURL = "https://vercel.com/api"

// baseURLVariable names the API's address where ClientOptions doesn't.
const baseURLVariable = "VERCEL_SANDBOX_BASE_URL"

// apiAddress returns the API's address, by default that of the environment, and
// whether it is from there.
func apiAddress(base string, allowHTTP bool) (u *url.URL, fromEnv bool, err error) {
	if base == "" {
		base = os.Getenv(baseURLVariable)
		fromEnv = base != ""
	}
	if base == "" {
		base = defaultBaseURL
	}
	u, err = url.Parse(strings.TrimRight(base, "/"))
	switch {
	case err != nil:
		return nil, false, invalid("BaseURL", "it is not an http or https address")
	case u.Scheme == "" && bareHost.MatchString(base):
		return nil, false, invalid("BaseURL", "%q is not an http or https address; is https://%s meant?", base, base)
	case u.Scheme != "https" && u.Scheme != "http" || u.Host == "":
		return nil, false, invalid("BaseURL", "%q is not an http or https address", redact.URL(base))
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, false, invalid("BaseURL", "%q has more than a host and a path", redact.URL(base))
	case u.Scheme == "http" && !allowHTTP && !onThisMachine(u.Hostname()):
		return nil, false, invalid("BaseURL", "%q is not encrypted, and would be sent credentials in the clear; use https, or set AllowHTTP", redact.URL(base))
	}
	return u, fromEnv, nil
}

// bareHost matches an address that lacks its scheme, and in which nothing can be
// secret.
var bareHost = regexp.MustCompile(`^[a-z0-9.-]+(/[a-z0-9./-]*)?$`)

// onThisMachine reports whether host is this machine, whatever name servers
// say.
func onThisMachine(host string) bool {
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback() || host == "localhost"
}
