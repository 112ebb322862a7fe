package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cadastre-dev/cadastre/internal/manifests"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
)

// demo runs a cluster in the foreground and claims blocks in it.
func demo(ctx context.Context, at place, wants wanted) (err error) {
	held, err := take(at)
	if err != nil {
		return err
	}
	defer held.release()
	if err := held.sign(); err != nil {
		return err
	}
	samples, err := findSamples(at)
	if err != nil {
		return err
	}
	begin := time.Now()
	with := wants.options(at)
	with.Progress = os.Stdout
	running, err := cluster.Start(ctx, with)
	if err != nil {
		return err
	}
	defer func() {
		fmt.Println("stopping")
		err = errors.Join(err, running.Stop())
	}()
	fmt.Printf("Cadastre is up after %.1f s.\n", time.Since(begin).Seconds())

	if err := (show{running, at}).all(ctx, samples); err != nil {
		return err
	}
	if os.Getenv("DEMO_EXIT") == "1" {
		return nil
	}
	fmt.Print("\nCtrl-C ends it.\n")
	<-ctx.Done()
	fmt.Println()
	return nil
}

// show runs kubectl and prints the output that a user would see.
type show struct {
	cluster *cluster.Cluster
	at      place
}

// claimed is an output format that prints a claim and the block that it got.
const claimed = `jsonpath={.metadata.name}: {.spec.cidr}{"\n"}`

const tryNext = `  kubectl create -o jsonpath='{.spec.cidr}{"\n"}' -f - <<END
  {apiVersion: ipam.cadastre.dev/v1alpha1, kind: IPClaim, metadata: {generateName: try-}, spec: {prefixLength: 26}}
END`

func (s show) all(ctx context.Context, samples samples) error {
	fmt.Print("\nThe platform team describes its address space:\n")
	for _, file := range samples.platform {
		if err := s.kubectl(ctx, "apply", "--server-side", "-f", file); err != nil {
			return err
		}
	}
	if err := s.kubectl(ctx, "wait", "--for=condition=Ready", "ippools,localippools", "--all", "--timeout=60s"); err != nil {
		return err
	}
	fmt.Print("\nWorkloads claim blocks, and have them in the response to the create call:\n")
	for _, file := range samples.claims {
		if err := s.kubectl(ctx, "create", "-f", file, "-o", claimed); err != nil {
			return err
		}
	}
	fmt.Print("\nThe register:\n")
	if err := s.kubectl(ctx, "wait", "--for=condition=Ready", "ipclaims", "--all", "-A", "--timeout=30s"); err != nil {
		return err
	}
	if err := s.awaitCounts(ctx); err != nil {
		return err
	}
	if err := s.kubectl(ctx, "get", "ipclasses,ippools,localippools,ipclaims,ipallocations", "-A"); err != nil {
		return err
	}
	fmt.Printf("\nTry next, in another terminal:\n%s%s\n", environment(s.at), tryNext)
	return nil
}

// awaitCounts blocks until the pools have counted the blocks that the samples claim: they count once
// a second.
func (s show) awaitCounts(ctx context.Context) error {
	for pool, allocations := range map[string]int{
		"ippool/corporate": 3, "ippool/region-west": 2, "ippool/machines": 1, "ippool/corporate-v6": 1, "localippool/team-lab": 1,
	} {
		_, err := s.cluster.Kubectl(ctx, "wait", fmt.Sprintf("--for=jsonpath={.status.allocations}=%d", allocations), pool, "--timeout=30s")
		if err != nil {
			return err
		}
	}
	return nil
}

// kubectl prints the command as it would be typed, and its output.
func (s show) kubectl(ctx context.Context, args ...string) error {
	quoted := make([]string, len(args))
	for i, arg := range args {
		quoted[i] = arg
		if strings.ContainsAny(arg, ` {}$"`) {
			quoted[i] = "'" + arg + "'"
		}
	}
	fmt.Println("$ kubectl", strings.Join(quoted, " "))
	out, err := s.cluster.Kubectl(ctx, args...)
	fmt.Print(out)
	return err
}

const samplesDir = "config/samples"

// samples holds the files of config/samples, in the order of their names: claims,
// and the other objects, which must exist before them.
type samples struct{ platform, claims []string }

func findSamples(at place) (samples, error) {
	files, err := filepath.Glob(filepath.Join(at.moduleRoot, samplesDir, "*.yaml"))
	if err != nil {
		return samples{}, err
	}
	var found samples
	for _, file := range files {
		if filepath.Base(file) == "kustomization.yaml" {
			continue
		}
		claims, err := hasClaims(file)
		switch {
		case err != nil:
			return samples{}, fmt.Errorf("reading %s: %w", at.shown(file), err)
		case claims:
			found.claims = append(found.claims, at.shown(file))
		default:
			found.platform = append(found.platform, at.shown(file))
		}
	}
	if len(found.claims) == 0 {
		return samples{}, fmt.Errorf("%s has no IPClaim", samplesDir)
	}
	return found, nil
}

// hasClaims reports whether a file holds IPClaims. A file must hold only claims, or none.
func hasClaims(path string) (bool, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	objects, err := manifests.Decode(content)
	if err != nil {
		return false, err
	}
	claims := 0
	for _, object := range objects {
		if object.GetKind() == "IPClaim" {
			claims++
		}
	}
	if claims > 0 && claims < len(objects) {
		return false, errors.New("it has IPClaims and other kinds; the demo needs them in separate files")
	}
	return claims > 0, nil
}
