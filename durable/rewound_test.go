package durable_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestRewound: a restored database rewinds a history while the machine continues. A new
// command is never mistaken for one that the history has lost: the call returns one error,
// and the next one runs the command. The machine may have been replaced, with its files.
func TestRewound(t *testing.T) {
	histories := 11
	if !needs.Slow() {
		histories = 3
	}
	for name, ids := range map[string]sandboxtest.CommandIDs{
		"IDs honored": sandboxtest.CommandIDsHonored, "IDs ignored": sandboxtest.CommandIDsIgnored, "IDs refused": sandboxtest.CommandIDsRefused,
	} {
		for _, replaced := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				srv := sandboxtest.New(t, &sandboxtest.Options{CommandIDs: ids})
				var backup []byte // the state of the sandbox in a history
				for n := range histories {
					var suite testsuite.WorkflowTestSuite
					env := suite.NewTestWorkflowEnvironment()
					env.SetTestTimeout(2 * time.Minute)
					(&durable.Worker{Client: srv.Client(), Fleet: "f"}).Register(env)
					env.ExecuteWorkflow(func(ctx workflow.Context) error {
						sb := new(durable.Sandbox)
						if n > 0 {
							require.NoError(t, json.Unmarshal(backup, sb))
						} else {
							var err error
							if sb, err = durable.Open(ctx, &durable.Options{Name: "box"}); err != nil {
								return err
							}
							backup, err = json.Marshal(sb)
							require.NoError(t, err)
						}
						script := "echo ran " + string(rune('a'+n)) + " | tee -a deployed; exit 7"
						run := func() (*durable.Result, error) { return sb.Run(ctx, "bash", []string{"-c", script}, nil) }
						res, err := run()
						if n > 0 {
							require.ErrorIs(t, err, durable.ErrRewound)
							assert.Equal(t, 1, sb.Rewinds)
							res, err = run()
						}
						require.NoError(t, err)
						assert.Equal(t, 7, res.ExitCode)
						assert.Equal(t, "ran "+string(rune('a'+n))+"\n", res.Tail)
						if replaced {
							return sb.Hibernate(ctx)
						}
						return nil
					})
					require.NoError(t, env.GetWorkflowError())
				}
				sb, err := srv.Client().Get(t.Context(), "box", nil)
				require.NoError(t, err)
				deployed, err := sb.FS().ReadFile(t.Context(), "deployed")
				require.NoError(t, err)
				want := ""
				for n := range histories {
					want += "ran " + string(rune('a'+n)) + "\n"
				}
				assert.Equal(t, want, string(deployed), "each command ran once")
			})
		}
	}
}

// TestOwnExitCode125: a command that exits with 125 is not mistaken for a start that lost.
func TestOwnExitCode125(t *testing.T) {
	env := newEnv(t, sandboxtest.CommandIDsRefused)
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		sb, err := durable.Open(ctx, nil)
		if err != nil {
			return err
		}
		for _, script := range []string{"exit 125", "rm -rf /tmp/.durable; exit 125"} {
			res, err := sb.Run(ctx, "sh", []string{"-c", script}, nil)
			require.NoError(t, err)
			assert.Equal(t, 125, res.ExitCode)
		}
		return sb.Delete(ctx)
	})
	require.NoError(t, env.GetWorkflowError())
}

// TestReset: after the loss of all files, a command runs only if OnLoss allows it. The
// error is returned once.
func TestReset(t *testing.T) {
	for _, goes := range []bool{false, true} {
		env := newEnv(t, "")
		env.ExecuteWorkflow(func(ctx workflow.Context) error {
			sb, err := durable.Open(ctx, nil)
			if err != nil {
				return err
			}
			asked := 0
			if goes {
				sb.OnLoss = func(_ workflow.Context, err error) error {
					asked++
					assert.ErrorIs(t, err, durable.ErrReset)
					return nil
				}
			}
			require.NoError(t, env.Worker.Client.Delete(t.Context(), sb.Options.Name, nil))
			res, err := sb.Run(ctx, "echo", []string{"ran"}, nil)
			if goes {
				assert.Equal(t, 1, asked)
			} else {
				require.ErrorIs(t, err, durable.ErrReset)
				res, err = sb.Run(ctx, "echo", []string{"ran"}, nil)
			}
			require.NoError(t, errors.Join(err, res.Err()))
			assert.Equal(t, 1, sb.Resets)
			return sb.Delete(ctx)
		})
		require.NoError(t, env.GetWorkflowError())
	}
}
