// SPDX-License-Identifier: Apache-2.0

// Package manifests checks deploy/kubernetes. It is a module of its own: nothing that mpcc is made of needs Kubernetes'
// types.
package manifests

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resource"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

const folder = "../../deploy/kubernetes"

func build(t *testing.T, dir string) []*resource.Resource {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return built.Resources()
}

// as decodes a resource, of which every key has to be known.
func as[T any](t *testing.T, r *resource.Resource) (into T) {
	t.Helper()
	text, err := r.MarshalJSON()
	if err == nil {
		err = decode(text, &into)
	}
	if err != nil {
		t.Errorf("%s: %v", r.CurId(), err)
	}
	return into
}

// decode is how Kubernetes decodes with fieldValidation=Strict.
func decode(text []byte, into any) error {
	strict, err := json.UnmarshalStrict(text, into)
	return errors.Join(append(strict, err)...)
}

// The base and every overlay build, have no key that Kubernetes does not know, and fit together.
func TestManifests(t *testing.T) {
	found, err := filepath.Glob(filepath.Join(folder, "*", "*", "kustomization.yaml"))
	if err != nil || len(found) == 0 {
		t.Fatalf("no overlays: %v", err)
	}
	for _, file := range append(found, filepath.Join(folder, "base/kustomization.yaml")) {
		dir := filepath.Dir(file)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			var config core.ConfigMap
			var service core.Service
			var monitors []monitoring.PodMonitor
			sets := map[string]apps.DaemonSet{}
			for _, r := range build(t, dir) {
				switch r.GetKind() {
				case "Namespace":
					as[core.Namespace](t, r)
				case "ConfigMap":
					config = as[core.ConfigMap](t, r)
				case "Service":
					service = as[core.Service](t, r)
				case "DaemonSet":
					sets[r.GetName()] = as[apps.DaemonSet](t, r)
				case "PodMonitor":
					monitors = append(monitors, as[monitoring.PodMonitor](t, r))
				default:
					t.Errorf("%s: a kind that is not checked", r.CurId())
				}
			}
			text, err := os.ReadFile(filepath.Join(dir, "config.yaml"))
			if err != nil || config.Data["config.yaml"] != string(text) {
				t.Errorf("the ConfigMap is not config.yaml, %v", err)
			}
			if len(sets) != 2 {
				t.Errorf("%d DaemonSets", len(sets))
			}
			for name, set := range sets {
				pod := set.Spec.Template
				if !contains(pod.Labels, set.Spec.Selector.MatchLabels) {
					t.Errorf("%s does not select its own pods", name)
				}
				if s := pod.Spec.AutomountServiceAccountToken; s == nil || *s {
					t.Errorf("%s has a token", name)
				}
				volumes := map[string]core.Volume{}
				for _, v := range pod.Spec.Volumes {
					volumes[v.Name] = v
					if v.ConfigMap != nil && v.ConfigMap.Name != config.Name {
						t.Errorf("%s takes the ConfigMap %s, and there is %s", name, v.ConfigMap.Name, config.Name)
					}
				}
				for _, m := range pod.Spec.Containers[0].VolumeMounts {
					if _, there := volumes[m.Name]; !there {
						t.Errorf("%s mounts %s, which is no volume", name, m.Name)
					}
					delete(volumes, m.Name)
				}
				if len(volumes) > 0 {
					t.Errorf("%s does not mount %v", name, volumes)
				}
			}
			exporter := sets["mpcc-exporter"].Spec.Template
			if !contains(exporter.Labels, service.Spec.Selector) {
				t.Error("the service is of no pod")
			}
			ports := exporter.Spec.Containers[0].Ports
			named := func(name string) bool {
				return slices.ContainsFunc(ports, func(p core.ContainerPort) bool { return p.Name == name })
			}
			if !named(service.Spec.Ports[0].TargetPort.String()) {
				t.Error("the service is of no port")
			}
			for _, m := range monitors {
				if !contains(exporter.Labels, m.Spec.Selector.MatchLabels) || !named(*m.Spec.PodMetricsEndpoints[0].Port) {
					t.Error("the monitor is of no port of a pod")
				}
			}
		})
	}
}

// Each pod of the sweep runs a part of its own, of as many as there are pods, into the claim.
func TestSweep(t *testing.T) {
	var job batch.Job
	var claim core.PersistentVolumeClaim
	for _, r := range build(t, filepath.Join(folder, "sweep")) {
		switch r.GetKind() {
		case "Job":
			job = as[batch.Job](t, r)
		case "PersistentVolumeClaim":
			claim = as[core.PersistentVolumeClaim](t, r)
		default:
			t.Errorf("%s: a kind that is not checked", r.CurId())
		}
	}
	spec := job.Spec
	if spec.CompletionMode == nil || *spec.CompletionMode != batch.IndexedCompletion || spec.Completions == nil {
		t.Fatal("its pods have no numbers")
	}
	pod := spec.Template.Spec
	args := pod.Containers[0].Args
	at := slices.Index(args, "--shard")
	if want := fmt.Sprintf("$(JOB_COMPLETION_INDEX)/%d", *spec.Completions); at < 0 || args[at+1] != want {
		t.Errorf("there are %d pods, and they run %v", *spec.Completions, args)
	}
	out := args[slices.Index(args, "--out")+1]
	mount := pod.Containers[0].VolumeMounts[0]
	if !strings.HasPrefix(out, mount.MountPath+"/") || !strings.Contains(out, "$(JOB_COMPLETION_INDEX)") {
		t.Errorf("results go to %s, and the claim is at %s", out, mount.MountPath)
	}
	volume := pod.Volumes[0]
	if volume.Name != mount.Name || volume.PersistentVolumeClaim.ClaimName != claim.Name || !slices.Contains(claim.Spec.AccessModes, core.ReadWriteMany) {
		t.Errorf("the volume %+v is not the claim %s", volume, claim.Name)
	}
}

func contains(labels, selector map[string]string) bool {
	for name, value := range selector {
		if labels[name] != value {
			return false
		}
	}
	return len(selector) > 0
}

// A key with a wrong letter is found.
func TestUnknownKey(t *testing.T) {
	for _, r := range build(t, filepath.Join(folder, "base")) {
		if r.GetName() != "mpcc-apply" {
			continue
		}
		text, err := r.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		wrong := bytes.Replace(text, []byte("readOnlyRootFilesystem"), []byte("readOnlyRootFileSystem"), 1)
		err = decode(wrong, &apps.DaemonSet{})
		if err == nil || !strings.Contains(err.Error(), `unknown field "spec.template.spec.containers[0].securityContext.readOnlyRootFileSystem"`) {
			t.Errorf("it said %v", err)
		}
		return
	}
	t.Error("there is no mpcc-apply")
}
