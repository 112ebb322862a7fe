package ui

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/register"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/terminal"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// Commands represents the commands of the plug-in that answer questions, with the caller's rights.
// Each returns the value that the command prints as JSON.
type Commands interface {
	Who(ctx context.Context, r *register.Register, asked string) (any, error)
	Explain(ctx context.Context, r *register.Register, claim Claim) (any, error)
	Free(ctx context.Context, r *register.Register, request FreeOf) (any, error)
	// Machine finds the IPAddressClaims of a Machine of Cluster API.
	Machine(ctx context.Context, name string) (any, error)

	Create(ctx context.Context, request ClaimRequest) (any, error)
	Release(ctx context.Context, namespace, name, uid string) (any, error)
}

// Claim names a claim.
type Claim struct{ Kind, Namespace, Name string }

// FreeOf describes a request for free blocks of a pool.
type FreeOf struct {
	Pool ipam.PoolKey
	// Length is ipam.NoLength if no length is requested.
	Length, Count int
}

// ClaimRequest describes an IPClaim to be created.
type ClaimRequest struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Pool is the ID of a pool; empty: none is named.
	Pool  string `json:"pool"`
	Class string `json:"class"`
	CIDR  string `json:"cidr"`
	// Length is nil if no length is requested.
	Length *int32 `json:"length"`
}

const (
	// askWithin bounds the time of a question, including the wait for its turn.
	askWithin = 40 * time.Second
	// mostFree bounds the number of blocks in a request.
	mostFree = 1000
)

// wrong returns the error of an invalid request.
func wrong(format string, args ...any) error {
	return command.Coded(command.ExitUsage, fmt.Errorf(format, args...))
}

type ask func(ctx context.Context, query url.Values) (any, error)

// askable returns the questions by their paths.
func (s *server) askable() map[string]ask {
	return map[string]ask{
		"/api/who": func(ctx context.Context, query url.Values) (any, error) {
			address, err := needed(query, "address")
			if err != nil {
				return nil, err
			}
			return s.Commands.Who(ctx, s.Live.Register(), address)
		},
		"/api/explain": func(ctx context.Context, query url.Values) (any, error) {
			claim := Claim{Kind: query.Get("kind"), Namespace: query.Get("namespace"), Name: query.Get("name")}
			if claim.Kind == "" || claim.Namespace == "" || claim.Name == "" {
				return nil, wrong("kind, namespace and name of the claim are needed")
			}
			return s.Commands.Explain(ctx, s.Live.Register(), claim)
		},
		"/api/free": func(ctx context.Context, query url.Values) (any, error) {
			request, err := freeOf(query)
			if err != nil {
				return nil, err
			}
			return s.Commands.Free(ctx, s.Live.Register(), request)
		},
		"/api/machine": func(ctx context.Context, query url.Values) (any, error) {
			name, err := needed(query, "name")
			if err != nil {
				return nil, err
			}
			return s.Commands.Machine(ctx, name)
		},
	}
}

func needed(query url.Values, name string) (string, error) {
	value := query.Get(name)
	if value == "" {
		return "", wrong("%s is needed", name)
	}
	return value, nil
}

func freeOf(query url.Values) (FreeOf, error) {
	request := FreeOf{Length: ipam.NoLength, Count: 1}
	var err error
	if request.Pool, err = PoolOf(query.Get("pool")); err != nil {
		return request, err
	}
	for name, target := range map[string]*int{"length": &request.Length, "count": &request.Count} {
		if text := query.Get(name); text != "" {
			if *target, err = strconv.Atoi(text); err != nil {
				return request, wrong("%s=%s: is not a number", name, text)
			}
		}
	}
	switch {
	case request.Count < 1 || request.Count > mostFree:
		return request, wrong("count=%d: must be 1 to %d", request.Count, mostFree)
	case request.Length < ipam.NoLength || request.Length > ipam.IPv6.Bits():
		return request, wrong("length=%d: is not a prefix length", request.Length)
	}
	return request, nil
}

// PoolOf returns the pool that an ID names, in the form of the messages.
func PoolOf(id string) (ipam.PoolKey, error) {
	parts := strings.Split(id, "/")
	kind, number := ipam.PoolKind(parts[0]), 2
	if kind.IsNamespaced() {
		number = 3
	}
	if !kind.IsPool() || len(parts) != number || slices.Contains(parts, "") {
		return ipam.PoolKey{}, wrong("pool=%s: is not the ID of a pool: write IPPool/NAME or LocalIPPool/NAMESPACE/NAME", id)
	}
	return ipam.PoolOfKind(kind, parts[1], parts[number-1]), nil
}

// question answers a question, one at a time.
func (s *server) question(ask ask) http.HandlerFunc {
	turn := semaphore.NewWeighted(1)
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), askWithin)
		defer cancel()
		select {
		case <-s.Live.AllRead():
		case <-ctx.Done():
			refuse(w, http.StatusServiceUnavailable, command.ExitTimedOut, "the records have not been read yet: try again")
			return
		}
		if turn.Acquire(ctx, 1) != nil {
			refuse(w, http.StatusServiceUnavailable, command.ExitTimedOut, "other questions are being answered: try again")
			return
		}
		defer turn.Release(1)
		found, err := ask(ctx, r.URL.Query())
		reply(w, found, err)
	}
}

// reply answers with the result, or with the error.
func reply(w http.ResponseWriter, found any, err error) {
	if err == nil {
		answer(w, http.StatusOK, found)
		return
	}
	code := command.CodeOf(err)
	refuse(w, statusOf(err, code), code, terminal.PrintableLines(command.Explained(err)))
}

// statusOf returns the HTTP code for an error: the code of the API server, except when that server
// does not know the caller, because the server of the page does.
func statusOf(err error, code command.ExitCode) int {
	var answered apierrors.APIStatus
	if errors.As(err, &answered) && answered.Status().Code >= 400 && answered.Status().Code != http.StatusUnauthorized {
		return int(answered.Status().Code)
	}
	return cmp.Or(map[command.ExitCode]int{
		command.ExitUsage: http.StatusBadRequest, command.ExitExhausted: http.StatusInsufficientStorage, command.ExitNotFound: http.StatusNotFound,
		command.ExitForbidden: http.StatusForbidden, command.ExitConflict: http.StatusConflict, command.ExitLimit: http.StatusForbidden,
		command.ExitTimedOut: http.StatusGatewayTimeout,
	}[code], http.StatusInternalServerError)
}

// write passes on requests that write, if the command was started for that.
func (s *server) write(do func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s.Hello.ReadOnly {
			refuse(w, http.StatusForbidden, command.ExitForbidden, "nothing is changed from here: start kubectl ipam ui with --read-only=false")
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, mostBody)
		ctx, cancel := context.WithTimeout(r.Context(), askWithin)
		defer cancel()
		done, err := do(r.WithContext(ctx))
		reply(w, done, err)
	}
}

func (s *server) create(r *http.Request) (any, error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, wrong("Content-Type: %s: send application/json", r.Header.Get("Content-Type"))
	}
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	var request ClaimRequest
	if err := decoder.Decode(&request); err != nil {
		return nil, wrong("the claim cannot be read: %v", err)
	}
	if request.Namespace == "" {
		return nil, wrong("namespace is needed")
	}
	if request.Pool != "" {
		if _, err := PoolOf(request.Pool); err != nil {
			return nil, err
		}
	}
	return s.Commands.Create(r.Context(), request)
}

func (s *server) release(r *http.Request) (any, error) {
	query := r.URL.Query()
	namespace, name, uid := query.Get("namespace"), query.Get("name"), query.Get("uid")
	if namespace == "" || name == "" || uid == "" {
		return nil, wrong("namespace, name and uid of the claim are needed")
	}
	return s.Commands.Release(r.Context(), namespace, name, uid)
}
