package server

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slowray/slowray/lab/sandbox"
)

// Claim is a PersistentVolumeClaim that a pod mounts: a directory of a disk, with the file
// ClaimFile. The zero value is none.
type Claim struct {
	Name   string
	Plugin string // of the kubelet's directory for it: "csi", "local-volume"
	Path   string // where the container mounts it
	Rate   int    // bytes that its disk reads in a second; 0 = as many as it can
	// Job says that a pod of a CronJob reads the disk from end to end, again and again, through
	// a claim of its own.
	Job bool
}

// ClaimFile is the file on the disk, of claimMB.
const (
	ClaimFile = "fares"
	claimMB   = 96
)

// claimClass is the StorageClass of all claims.
const claimClass = "shared-disk"

func persistentVolume(claim string) string { return "pv-" + claim }

// diskScript makes a disk in memory, which can only be read, and mounts it. It is as quick as
// the process that hands its image on.
const diskScript = `set -e
mkdir image shared disk
mount -t tmpfs -o size=200m image image
truncate -s 160M image/disk
mkfs.ext4 -q -m 0 image/disk
mount -o loop image/disk disk
head -c %dM /dev/urandom > disk/%s
umount disk
`

// attachScript mounts it from what that process shows of the image, past the cache.
const attachScript = `set -e
until [ -e shared/disk ]; do sleep 0.05; done
device=$(losetup --find --show --read-only --direct-io=on shared/disk)
mount -o ro "$device" disk
losetup --detach "$device"
`

// disk makes the disk that claims are of.
func (k *kubelet) disk() error {
	c := &k.s.v.Pod.Claim
	if c.Name == "" {
		return nil
	}
	script := func(text string) error {
		args, err := k.s.inDir(text)
		if err != nil {
			return err
		}
		if _, err = k.s.box.Server.Output(k.s.ctx, append([]string{"timeout", "20"}, args...)...); err != nil {
			return fmt.Errorf("the disk of a claim: %w", err)
		}
		return nil
	}
	if err := script(fmt.Sprintf(diskScript, claimMB, ClaimFile)); err != nil {
		return err
	}
	image, shared := filepath.Join(k.s.box.Dir, "image"), filepath.Join(k.s.box.Dir, "shared")
	args := []string{"bindfs", "-f", image, shared}
	if c.Rate > 0 {
		args = append(args, fmt.Sprintf("--read-rate=%d", c.Rate))
	}
	if _, err := k.s.box.Server.Start(k.s.ctx, sandbox.Spec{Args: args, Stdout: shared + ".out", Stderr: shared + ".out"}); err != nil {
		return err
	}
	if err := script(attachScript); err != nil {
		return err
	}
	// In the mounts of a program of this name slowray looks for the kubelet's own.
	program := filepath.Join(k.s.box.Dir, "bin/kubelet")
	if err := os.MkdirAll(filepath.Dir(program), 0o755); err != nil {
		return err
	}
	if err := os.Symlink("/bin/sleep", program); err != nil {
		return err
	}
	_, err := k.s.box.Server.Start(k.s.ctx, sandbox.Spec{Args: []string{program, "infinity"}})
	return err
}

// volumeDir is where the kubelet mounts a claim for a pod (pkg/kubelet/kubelet_getters.go and
// pkg/volume/csi/csi_util.go of Kubernetes).
func (k *kubelet) volumeDir(uid types.UID, claim string) string {
	dir := filepath.Join(k.s.box.Dir, "kubelet/pods", string(uid), "volumes/kubernetes.io~"+k.s.v.Pod.Claim.Plugin, persistentVolume(claim))
	if k.s.v.Pod.Claim.Plugin == "csi" {
		dir = filepath.Join(dir, "mount")
	}
	return dir
}

// attach gives a pod a claim: in its manifest, and mounted where a kubelet does.
func (k *kubelet) attach(p *corev1.Pod, claim, path string) error {
	if claim == "" {
		return nil
	}
	p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
	p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: path}}
	if k.api != nil {
		class := claimClass
		k.api.put("persistentvolumeclaims", claim, corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{VolumeName: persistentVolume(claim), StorageClassName: &class}})
	}
	dir := k.volumeDir(p.UID, claim)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	_, err := k.s.box.Server.Output(k.s.ctx, "mount", "--bind", filepath.Join(k.s.box.Dir, "disk"), dir)
	return err
}

// inMounts is a command in a mount namespace in which the claim is where the container has it.
func (k *kubelet) inMounts(p *corev1.Pod, args []string) []string {
	c := &k.s.v.Pod.Claim
	if c.Name == "" {
		return args
	}
	return append([]string{"unshare", "--mount", "--propagation", "private", "sh", "-ec", `mount --bind "$1" "$2"; shift 2; exec "$@"`, "sh", k.volumeDir(p.UID, c.Name), c.Path}, args...)
}

// job starts a pod that reads the disk again and again.
func (k *kubelet) job() error {
	if !k.s.v.Pod.Claim.Job {
		return nil
	}
	const claim = "nightly"
	name := fmt.Sprintf("%s-%d", claim, time.Now().Unix()/60) // of a Job, as its CronJob calls it
	uid, id, controller := randomHex(16), randomHex(32), true
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: podNamespace, Name: name + "-" + uid[:5], UID: types.UID(uid), CreationTimestamp: metav1.Now(),
			OwnerReferences: []metav1.OwnerReference{{Kind: "Job", Name: name, Controller: &controller}}},
		Spec: corev1.PodSpec{NodeName: NodeName, Containers: []corev1.Container{{Name: "export", Image: "export:1"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBestEffort, ContainerStatuses: []corev1.ContainerStatus{{Name: "export", Image: "export:1", Ready: true,
			ContainerID: "containerd://" + id, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}}}},
	}
	if err := k.attach(p, claim, "/backup"); err != nil {
		return err
	}
	groups, err := k.s.podGroups(uid, id)
	if err != nil {
		return err
	}
	loop := fmt.Sprintf("while :; do dd if=%s of=/dev/null bs=1M iflag=direct status=none; done", filepath.Join(k.volumeDir(p.UID, claim), ClaimFile))
	if _, err := k.s.box.Server.Start(k.s.ctx, sandbox.Spec{Args: []string{"sh", "-c", loop}, Stderr: filepath.Join(k.s.box.Dir, "job.out"), Cgroups: groups}); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.jobs = append(k.jobs, p)
	k.tell()
	return nil
}
