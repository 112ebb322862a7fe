package cluster

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// The test binary also plays the programs that the tests run: the environment variable playEnv
// selects one.
const (
	playEnv = "CADASTRE_TEST_PLAY"
	// playManager is ready at once and does nothing.
	playManager = "manager"
	// playQuitter ends before it is ready.
	playQuitter = "quitter"
	// playOwner starts a manager under a leash, prints where it answers, and
	// waits to be killed.
	playOwner = "owner"
)

func TestMain(m *testing.M) {
	switch os.Getenv(playEnv) {
	case playManager:
		serveProbes()
	case playQuitter:
		fmt.Fprintln(os.Stdout, "quitting")
	case playOwner:
		ownManager()
	default:
		os.Exit(m.Run())
	}
}

func serveProbes() {
	for _, arg := range os.Args {
		if address, ok := strings.CutPrefix(arg, "--health-probe-bind-address="); ok {
			ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
			server := http.Server{Addr: address, Handler: ok, ReadHeaderTimeout: time.Second}
			fmt.Fprintln(os.Stdout, server.ListenAndServe())
		}
	}
}
