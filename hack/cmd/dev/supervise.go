package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
)

// supervise runs a cluster until a signal (SIGTERM) ends it. It owns all the
// processes; its own log is its standard error.
func supervise(ctx context.Context, at place, wants wanted) error {
	held, err := take(at)
	if err != nil {
		return err
	}
	defer held.release()
	if err := held.sign(); err != nil {
		return err
	}
	with := wants.options(at)
	with.Progress = io.MultiWriter(os.Stdout, os.Stderr)
	running, err := cluster.Start(ctx, with)
	if err != nil {
		fmt.Println(err) // to up; main writes it into the log
		return err
	}
	if err := reportReady(); err != nil {
		return errors.Join(err, running.Stop())
	}
	<-ctx.Done()
	return running.Stop()
}

// reportReady notifies up, and closes the standard output.
func reportReady() error {
	ready := os.NewFile(readyFD, "ready")
	if _, err := ready.Write([]byte{1}); err != nil {
		return err
	}
	return errors.Join(ready.Close(), os.Stdout.Close())
}
