package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// prefix holds the fields that are read of a prefix of NetBox.
type prefix struct {
	ID     int64        `json:"id"`
	Prefix netip.Prefix `json:"prefix"`
	// VRF has the id 0 for the global table.
	VRF struct {
		ID int64 `json:"id"`
	} `json:"vrf"`
	Status struct {
		Value string `json:"value"`
	} `json:"status"`
	CustomFields struct {
		Key string `json:"ipam_key"`
	} `json:"custom_fields"`
}

func (p prefix) title() string { return fmt.Sprintf("the prefix %s (id %d)", p.Prefix, p.ID) }

// client makes requests for the prefixes of NetBox. It can be used concurrently.
type client struct {
	// base is the URL of the prefixes in the API.
	base string
	http *http.Client
	// token is called for each request.
	token func() (string, error)
	// after is time.After.
	after func(time.Duration) <-chan time.Time
}

func newClient(base string, transport http.RoundTripper, token func() (string, error)) (client, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.User != nil {
		return client{}, errors.New("the URL of NetBox is not valid: write one such as https://netbox.example.com, without a user name")
	}
	// A redirect would repeat a POST as a GET.
	h := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return client{base: u.JoinPath("api/ipam/prefixes/").String(), http: h, token: token, after: time.After}, nil
}

// pageLength limits the prefixes of a response. NetBox returns fewer if its MAX_PAGE_SIZE is less.
const pageLength = 1000

// list returns the prefixes that match a query.
func (c *client) list(ctx context.Context, query url.Values) ([]prefix, error) {
	query.Set("limit", strconv.Itoa(pageLength))
	var all []prefix
	for {
		query.Set("offset", strconv.Itoa(len(all)))
		var page struct {
			Next    string   `json:"next"`
			Results []prefix `json:"results"`
		}
		if err := c.do(ctx, http.MethodGet, "?"+query.Encode(), nil, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Results...)
		if page.Next == "" || len(page.Results) == 0 {
			return all, nil
		}
	}
}

// statusError represents a response other than 2xx.
type statusError struct {
	code       int
	text       string
	retryAfter time.Duration
}

// Error implements error.
func (e *statusError) Error() string { return e.text }

// statusOf returns the code of a statusError, or 0.
func statusOf(err error) int {
	if e, ok := errors.AsType[*statusError](err); ok {
		return e.code
	}
	return 0
}

// do makes a request to a path below the prefixes, and decodes the response. It repeats the request while NetBox is
// busy, until ctx is done: a second prefix that a repeated POST creates has the same key.
func (c *client) do(ctx context.Context, method, path string, content, into any) error {
	for {
		err := c.try(ctx, method, path, content, into)
		busy, ok := errors.AsType[*statusError](err)
		if !ok || busy.code != http.StatusTooManyRequests && busy.code < http.StatusInternalServerError {
			return err
		}
		select {
		case <-c.after(busy.retryAfter):
		case <-ctx.Done():
			return err
		}
	}
}

func (c *client) try(ctx context.Context, method, path string, content, into any) error {
	token, err := c.token()
	if err != nil {
		return err
	}
	body := &bytes.Buffer{}
	if content != nil {
		if err := json.NewEncoder(body).Encode(content); err != nil {
			return err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", authorization(token))
	response, err := c.http.Do(request)
	if err != nil {
		return fmt.Errorf("NetBox does not answer: %w", cause(err))
	}
	defer func() { _ = response.Body.Close() }() // it was only read
	if response.StatusCode >= http.StatusMultipleChoices {
		return refusal(response, token)
	}
	if into == nil {
		return nil
	}
	if err := json.NewDecoder(response.Body).Decode(into); err != nil {
		return fmt.Errorf("the answer of NetBox cannot be read: %w", cause(err))
	}
	return nil
}

// authorization returns the header for a token. Those of version 2, since NetBox 4.5, begin with nbt_.
func authorization(token string) string {
	if strings.HasPrefix(token, "nbt_") {
		return "Bearer " + token
	}
	return "Token " + token
}

// cause returns the innermost error. The outer ones name ports, which differ each time.
func cause(err error) error {
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(err) {
		err = next
	}
	return err
}

const (
	// explanation bounds the text that is shown of a refusal. Bytes.
	explanation = 300
	// usualPause is the time until a request is repeated, if NetBox does not state another one.
	usualPause = time.Second
)

// refusal returns the error of a response. NetBox explains 400 by the field that is wrong; responses with other
// codes may be from a proxy.
func refusal(response *http.Response, token string) error {
	text := fmt.Sprintf("NetBox answers %s to %s %s", response.Status, response.Request.Method, response.Request.URL.Path)
	switch response.StatusCode {
	case http.StatusBadRequest:
		body, _ := io.ReadAll(io.LimitReader(response.Body, explanation)) // as much as arrives
		text += ": " + strings.TrimSpace(strings.ToValidUTF8(strings.ReplaceAll(string(body), token, "***"), ""))
	case http.StatusUnauthorized, http.StatusForbidden:
		text += ": give it a token whose user can view, add and delete prefixes"
	}
	seconds, _ := strconv.Atoi(response.Header.Get("Retry-After")) // 0 if there is none
	return &statusError{response.StatusCode, text, cmp.Or(time.Duration(seconds)*time.Second, usualPause)}
}
