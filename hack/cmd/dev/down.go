package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"
)

// downTimeout bounds the wait for a supervisor to end all its processes.
const downTimeout = 2 * time.Minute

// down signals the supervisor to end, and waits until the supervisor and all its processes are
// gone.
func down(ctx context.Context, at place) error {
	free, err := take(at)
	if err == nil {
		free.release()
		fmt.Println("Nothing is running.")
		return nil
	}
	if !errors.Is(err, errRunning) {
		return err
	}
	l, err := openLock(at)
	if err != nil {
		return err
	}
	defer l.release()
	supervisor, err := l.holder()
	if err != nil {
		return fmt.Errorf("reading who runs it: %w", err)
	}
	begin := time.Now()
	fmt.Print("stopping the managers and the control plane ... ")
	if err := syscall.Kill(supervisor, syscall.SIGTERM); err != nil {
		return fmt.Errorf("telling process %d to end: %w", supervisor, err)
	}
	ctx, cancel := context.WithTimeout(ctx, downTimeout)
	defer cancel()
	if err := l.await(ctx); err != nil {
		return fmt.Errorf("waiting for process %d to end: %w", supervisor, err)
	}
	fmt.Printf("%.1f s\n", time.Since(begin).Seconds())
	return nil
}
