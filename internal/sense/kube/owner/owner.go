// Package owner tells who made a pod: the controller that a user edits.
//
// In: what a pod says of itself. Out: kind and name, as they came; whoever shows them
// clips them. The nodes and kubectl-slowray have to agree on them.
package owner

import (
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Labels that controllers put on the pods that they make (k8s.io/api, v1.34).
const (
	LabelTemplateHash = "pod-template-hash"
	labelRollouts     = "rollouts-pod-template-hash" // Argo Rollouts
	labelJob          = "batch.kubernetes.io/job-name"
	labelJobBefore    = "job-name"
	LabelStatefulPod  = "statefulset.kubernetes.io/pod-name"
	LabelGeneration   = "pod-template-generation" // DaemonSet
)

// Of is the controller of a pod that a user edits: the Deployment of its ReplicaSet,
// the CronJob of its Job; the pod itself where nothing controls it.
func Of(pod string, labels map[string]string, refs []metav1.OwnerReference, created time.Time) (kind, name string) {
	kind, name = "Pod", pod
	for i := range refs {
		if refs[i].Controller != nil && *refs[i].Controller && refs[i].Kind != "Node" { // a static pod is the kubelet's
			kind, name = refs[i].Kind, refs[i].Name
		}
	}
	switch kind {
	case "ReplicaSet":
		for label, of := range map[string]string{LabelTemplateHash: "Deployment", labelRollouts: "Rollout"} {
			if base, ok := cutHash(name, labels[label]); ok {
				kind, name = of, base
				break
			}
		}
	case "Job":
		if base, ok := cronJobOf(name, created); ok {
			kind, name = "CronJob", base
		}
	}
	return kind, name
}

// ByLabels is Of where only the labels are known, as to the container runtime:
// what controllers name pods is part of what they promise.
func ByLabels(pod string, labels map[string]string, created time.Time) (kind, name string) {
	base := ""
	if at := strings.LastIndexByte(pod, '-'); at > 0 {
		base = pod[:at]
	}
	hash, rollout := labels[LabelTemplateHash], labels[labelRollouts]
	job := labels[labelJob]
	if job == "" {
		job = labels[labelJobBefore]
	}
	kind, name = "Pod", pod
	switch {
	case rollout != "":
		if b, ok := cutHash(base, rollout); ok {
			kind, name = "Rollout", b
		}
	case hash != "":
		if b, ok := cutHash(base, hash); ok {
			kind, name = "Deployment", b
		}
	case job != "":
		kind, name = "Job", job
		if b, ok := cronJobOf(job, created); ok {
			kind, name = "CronJob", b
		}
	case labels[LabelStatefulPod] == pod && base != "":
		kind, name = "StatefulSet", base
	case labels[LabelGeneration] != "" && base != "":
		kind, name = "DaemonSet", base
	}
	return kind, name
}

func cutHash(name, hash string) (string, bool) {
	base, ok := strings.CutSuffix(name, "-"+hash)
	return base, ok && hash != "" && base != ""
}

// cronSlack is how late a CronJob may start a Job: its controller gives up on times that
// lie longer back than it was away, which nobody bounds; a day covers a cluster that was
// down over night.
const cronSlack = 24 * time.Hour

// cronJobOf takes from the name of a Job the minute for which a CronJob made it
// (pkg/controller/cronjob, getJobName), where that fits the time at which it was made.
func cronJobOf(job string, created time.Time) (string, bool) {
	at := strings.LastIndexByte(job, '-')
	if at <= 0 {
		return "", false
	}
	minutes, err := strconv.ParseInt(job[at+1:], 10, 64)
	if err != nil || minutes <= 0 || minutes > 1<<32 {
		return "", false
	}
	late := created.Sub(time.Unix(60*minutes, 0))
	return job[:at], late > -time.Minute && late < cronSlack
}
