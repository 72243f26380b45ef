#!/bin/sh
# The first process of a node, in namespaces of its own for processes and mounts: whatever it starts ends with it, and on the
# machine nothing is written beside <directory>; two empty directories below /var/lib may be new.
#
#   node.sh <directory> <kubelet> <flags of the kubelet...>
set -eu
dir=$1 kubelet=$2
shift 2
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
ctr="ctr --address $dir/c.sock --namespace k8s.io"

for path in /run /var/log /var/lib/cni /var/lib/kubelet; do
  mkdir -p $path
  mount -t tmpfs tmpfs $path
done

containerd --config "$dir/containerd.toml" >"$dir/containerd.log" 2>&1 &
tries=0
until $ctr version >/dev/null 2>&1; do
  if [ $tries -ge 600 ] || ! kill -0 $! 2>/dev/null; then
    tail -n 20 "$dir/containerd.log"
    exit 1
  fi
  tries=$((tries + 1))
  sleep 0.1
done
for archive in "$dir"/images/*.tar; do
  $ctr images import "$archive"
done
# As the kubelet asks for a name without a registry.
for name in $($ctr images ls -q); do
  case $name in */* | sha256:*) ;; *) $ctr images tag "$name" "docker.io/library/$name" ;; esac
done
"$kubelet" "$@" &
# Either's end is the node's.
wait $!
