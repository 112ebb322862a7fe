// The kubectl-ipam command is a plug-in of kubectl, for people who hand out address
// space or use it. It works with the rights of its caller alone, and needs
// nothing in the cluster but Cadastre's API.
//
//	kubectl ipam who 10.2.16.77
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := app.Run(ctx, os.Args[1:], genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr})
	stop()
	os.Exit(int(code))
}
