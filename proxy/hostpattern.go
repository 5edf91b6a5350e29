package proxy

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// hostPattern is a host, or all subdomains of one, at one port.
type hostPattern struct {
	name       string // in lower case, without a trailing dot
	subdomains bool   // its subdomains, not itself
	port       string // "": the default of the scheme
}

func parseHostPatterns(list []string) ([]hostPattern, error) {
	patterns := make([]hostPattern, 0, len(list))
	for _, s := range list {
		p := hostPattern{}
		if u, err := url.Parse(s); strings.Contains(s, "://") {
			if err != nil { // don't quote the address: it may contain a password
				return nil, errors.New("option Hosts: an entry is a URL: give its host alone")
			}
			return nil, fmt.Errorf("option Hosts: an entry is a URL: give its host alone, %q", u.Host)
		}
		rest, below := strings.CutPrefix(s, "*.")
		p.subdomains = below
		name := rest
		if i := strings.LastIndexByte(rest, ':'); i >= 0 && !strings.HasSuffix(rest, "]") {
			if _, err := parsePort(rest[i+1:]); err != nil {
				return nil, fmt.Errorf("option Hosts: the port of %q is not from 1 to 65535", s)
			}
			name, p.port = rest[:i], rest[i+1:]
		}
		host, err := parseHost(name)
		if err != nil || below && name[0] == '[' {
			return nil, fmt.Errorf("option Hosts: %q is not a host name, an address, or \"*.\" and a host name", s)
		}
		p.name = strings.TrimSuffix(host, ".")
		patterns = append(patterns, p)
	}
	return patterns, nil
}

// matchesURL reports whether one of the patterns matches a URL.
func matchesURL(patterns []hostPattern, u *url.URL) bool {
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	for _, p := range patterns {
		if p.port != u.Port() && !(p.port == "443" && u.Scheme == "https" && u.Port() == "") &&
			!(p.port == "80" && u.Scheme == "http" && u.Port() == "") {
			continue
		}
		if p.subdomains && strings.HasSuffix(host, "."+p.name) || !p.subdomains && host == p.name {
			return true
		}
	}
	return false
}
