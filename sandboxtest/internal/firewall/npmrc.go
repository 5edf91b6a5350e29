package firewall

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
)

// npmrc is what a team keeps in the variable NPM_RC: its registries, and how
// to log in at them. Sandboxes that were created with npm credentials see the
// registries; the rest stays with the firewall.
type npmrc struct {
	auths []npmAuth // of the longest paths first
	open  string    // the lines without secrets
}

// npmAuth is the header for requests to one registry.
type npmAuth struct{ host, port, path, header string }

// newNPMRC reads the format of npm, in which ${NAME} is a variable of this
// process. Empty text is nil.
func newNPMRC(text string) (*npmrc, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	rc := new(npmrc)
	logins := make(map[string]map[string]string) // by registry
	for number, line := range strings.Split(text, "\n") {
		key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if key == "" || strings.ContainsRune(";#", rune(key[0])) {
			continue
		}
		var missing []string
		value = os.Expand(strings.Trim(strings.TrimSpace(value), `"'`), func(name string) string {
			v, set := os.LookupEnv(name)
			if !set {
				missing = append(missing, name)
			}
			return v
		})
		key = strings.TrimSpace(key)
		registry, what, scoped := cutLast(key, ":")
		switch { // the line may hold a token, and is not shown
		case !ok:
			return nil, fmt.Errorf("Options.NPMRC: line %d is not KEY=VALUE", number+1)
		case missing != nil:
			return nil, fmt.Errorf("Options.NPMRC: line %d needs the environment variable %s", number+1, strings.Join(missing, ", "))
		case key == "registry", scoped && strings.HasPrefix(key, "@") && what == "registry":
			if u, err := url.Parse(value); err != nil || u.User != nil { // sandboxes see it
				return nil, fmt.Errorf("Options.NPMRC: line %d is not a registry's address without a login; a login belongs in a line //HOST/PATH/:_authToken=TOKEN", number+1)
			}
			rc.open += key + "=" + value + "\n"
		case scoped && strings.HasPrefix(registry, "//"):
			if logins[registry] == nil {
				logins[registry] = make(map[string]string)
			}
			logins[registry][what] = value
		}
	}
	for registry, login := range logins {
		auth, err := newNPMAuth(registry, login)
		if err != nil {
			return nil, fmt.Errorf("Options.NPMRC: %w", err)
		}
		if auth.header != "" {
			rc.auths = append(rc.auths, auth)
		}
	}
	slices.SortFunc(rc.auths, func(a, b npmAuth) int {
		return cmp.Or(cmp.Compare(len(b.path), len(a.path)), cmp.Compare(a.host+a.path, b.host+b.path))
	})
	return rc, nil
}

// cutLast cuts around the last separator.
func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

func newNPMAuth(registry string, login map[string]string) (npmAuth, error) {
	u, err := url.Parse("https:" + registry)
	if err != nil || u.Host == "" || u.User != nil {
		return npmAuth{}, errors.New("a registry is not of the form //HOST/PATH/")
	}
	auth := npmAuth{host: plainName(u.Hostname()), port: cmp.Or(u.Port(), "443"), path: strings.TrimSuffix(u.Path, "/") + "/"}
	switch {
	case login["_authToken"] != "":
		auth.header = "Bearer " + login["_authToken"]
	case login["_auth"] != "":
		auth.header = "Basic " + login["_auth"]
	case login["username"] != "" && login["_password"] != "":
		password, err := base64.StdEncoding.DecodeString(login["_password"])
		if err != nil {
			return npmAuth{}, fmt.Errorf("the _password for %s is not base64", u.Host)
		}
		auth.header = "Basic " + base64.StdEncoding.EncodeToString([]byte(login["username"]+":"+string(password)))
	}
	return auth, nil
}

// hosts are those of the registries.
func (rc *npmrc) hosts() (hosts []string) {
	if rc != nil {
		for _, a := range rc.auths {
			hosts = append(hosts, a.host)
		}
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// has reports whether the host is one of a registry.
func (rc *npmrc) has(host string) bool { return slices.Contains(rc.hosts(), host) }

// header is the one for a request to a host, empty when there is none: only
// what is downloaded from below the registry's path is asked for with it.
func (rc *npmrc) header(host string, port uint16, r *http.Request) string {
	if rc == nil || r.Method != http.MethodGet && r.Method != http.MethodHead || slices.Contains(strings.Split(r.URL.Path, "/"), "..") {
		return ""
	}
	for _, a := range rc.auths {
		if a.host == host && a.port == fmt.Sprint(port) && strings.HasPrefix(r.URL.Path, a.path) {
			return a.header
		}
	}
	return ""
}

// addRegistries gives the registries addresses of their own in sandboxes that
// may use credentials for them, so that their connections are looked into.
func (n *names) addRegistries(rc *npmrc) error {
	for _, host := range rc.hosts() {
		if _, there := n.servers[host]; there {
			continue
		}
		addr, ok := namedAddr(len(n.servers))
		if !ok {
			return errors.New("too many Options.Names and registries")
		}
		n.servers[host], n.byAddr[addr] = nameServer{addr: addr, registry: true}, host
	}
	return nil
}

// hostPort is how a request names a host at a port of TLS.
func hostPort(host string, port uint16) string {
	if port == 443 {
		return host
	}
	return net.JoinHostPort(host, fmt.Sprint(port))
}
