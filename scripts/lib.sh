# scripts/lib.sh: functions for scripts/test, scripts/check and scripts/demo. Sourced, not run.

# The number of compilers to run at once: one per core, but no more than fit in the free memory, because a
# unit that includes gRPC or GoogleTest takes up to about 1.5 GiB.
build_jobs() {
  local cores available_mib by_memory
  cores=$(nproc)
  available_mib=$(awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo)
  by_memory=$((available_mib / 1536))
  if ((by_memory < 1)); then by_memory=1; fi
  echo $((cores < by_memory ? cores : by_memory))
}
