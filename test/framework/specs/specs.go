// Package specs runs the suites that are written in Ginkgo.
package specs

import (
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
)

// Run runs the specs of a package. Eventually waits for so long, and looks so often.
func Run(t *testing.T, name string, within, every time.Duration) {
	t.Helper()
	gomega.RegisterFailHandler(ginkgo.Fail)
	gomega.SetDefaultEventuallyTimeout(within)
	gomega.SetDefaultEventuallyPollingInterval(every)
	ginkgo.RunSpecs(t, name)
}
