package cluster

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	readyTimeout  = time.Minute
	readyInterval = 100 * time.Millisecond
)

// answersOK waits until a URL of another process answers 200. It does not check
// certificates: a process that is just starting signs its own.
func answersOK(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		client := http.Client{
			Timeout: 2 * time.Second,
			Transport: &http.Transport{
				DisableKeepAlives: true,
				TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
			},
		}
		last := "no answer yet"
		err := wait.PollUntilContextTimeout(ctx, readyInterval, readyTimeout, true,
			func(ctx context.Context) (bool, error) {
				answer := get(ctx, &client, url)
				if ctx.Err() == nil || answer == "" { // else the last one explains more than that it was cut off
					last = answer
				}
				return answer == "", nil
			})
		if err != nil {
			return fmt.Errorf("%s: %s: %w", url, last, err)
		}
		return nil
	}
}

// get returns the reason why a URL does not answer 200, or nothing if it does.
func get(ctx context.Context, client *http.Client, url string) string {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err.Error()
	}
	response, err := client.Do(request)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10)) // which of the checks failed
		return response.Status + " " + string(said)
	}
	return ""
}
