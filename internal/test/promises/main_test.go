package promises_test

import (
	"testing"

	"github.com/go-vercel/sandbox/internal/test/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }
