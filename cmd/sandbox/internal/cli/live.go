package cli

import (
	"context"
	"fmt"
	"net/http"

	"github.com/go-vercel/sandbox/internal/platform"
)

// ask puts the questions of platform.md to the service, and says which of its
// marks the answers change.
func (c *doctorCommand) ask(ctx context.Context) ([]finding, error) {
	c.app.opts.noInput = true
	if _, err := c.app.connect(ctx); err != nil {
		return nil, err
	}
	s := platform.Service{URL: c.app.base(), Credentials: c.app.scope, HTTPClient: &http.Client{}, Users: true, Apart: true, Policies: true}
	if e := c.app.emulator; e != nil {
		s.URL, s.Users, s.Apart, s.Policies = e.Address.URL, false, false, false
	}
	stop := c.app.spin("Asking the service, for up to three minutes...")
	report, err := platform.Ask(ctx, s)
	stop()
	if err != nil && report == nil {
		return nil, err
	}
	agree := 0
	for _, a := range report.Answers {
		if a.Agrees() {
			agree++
		}
	}
	found := []finding{{"answers", foundOK, fmt.Sprintf("%d of %d as docs/maintainers/platform.md has them", agree, len(report.Answers))}}
	if !c.app.atVercel() || c.app.emulator != nil {
		found = append(found, finding{"service", foundWarning, "is not Vercel's: these are its answers, for which no mark is to be changed"})
	}
	for _, change := range report.Changes() {
		f := finding{change.Row, foundOK, change.Text}
		if change.Differs {
			f.Status = foundFailed
		}
		found = append(found, f)
	}
	for _, row := range []struct {
		check, status string
		texts         []string
	}{{"not asked", foundWarning, report.Skipped}, {"broken off", foundFailed, report.Broken}, {"not deleted", foundFailed, report.Left}} {
		for _, text := range row.texts {
			found = append(found, finding{row.check, row.status, text})
		}
	}
	return found, err
}
