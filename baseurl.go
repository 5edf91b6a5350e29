package sandbox

import (
	"net/url"
	"os"

	"github.com/go-vercel/sandbox/internal/oidc"
)

// apiAddress returns the API's address, by default that of the environment, and
// whether it is from there.
func apiAddress(base string, allowHTTP bool) (u *url.URL, fromEnv bool, err error) {
	if base == "" {
		base = os.Getenv(oidc.BaseURLVariable)
		fromEnv = base != ""
	}
	if base == "" {
		base = oidc.DefaultBaseURL
	}
	if u, err = oidc.Address(base, allowHTTP); err != nil {
		return nil, false, invalid("BaseURL", "%v", err)
	}
	return u, fromEnv, nil
}
