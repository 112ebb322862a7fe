package cluster

import (
	"context"
	"crypto/tls"
	"fmt"
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
				last = get(ctx, &client, url)
				return last == "", nil
			})
		if err != nil {
			return fmt.Errorf("%s: %s: %w", url, last, err)
		}
		return nil
	}
}

// get returns why a URL does not answer 200, or nothing if it does.
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
		return response.Status
	}
	return ""
}
