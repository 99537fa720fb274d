#include "src/runtime/cuda/nccl.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>

namespace trainyard::cuda {
namespace {

constexpr const char* kLibrary = "libnccl.so.2";
// ncclAvg needs version 2.10, ncclGetLastError() 2.13, and non-blocking initialization 2.14.
constexpr int kNcclVersionMin = 21400;

Error missing(const std::string& why) {
  return make_error(ErrorCode::kFailedPrecondition, "NCCL_MISSING",
                    "several GPUs need NCCL (" + std::string(kLibrary) + "): " + why +
                        "; install it (Debian and Ubuntu: libnccl2) or use one GPU");
}

Result<Nccl> load() {
  // Disables sums inside NVSwitch, whose order is not known to be fixed. NCCL reads this variable
  // when it starts, which happens below; an operator's own setting is kept.
  setenv("NCCL_NVLS_ENABLE", "0", /*overwrite=*/0);
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const char* reason = dlerror();
    return missing(reason != nullptr ? reason : "no reason given");
  }
  std::string absent;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr && absent.empty()) absent = name;
  };
  Nccl nccl{};
  find(nccl.get_version, "ncclGetVersion");
  find(nccl.comm_init_all, "ncclCommInitAll");
  find(nccl.get_unique_id, "ncclGetUniqueId");
  find(nccl.comm_init_rank_config, "ncclCommInitRankConfig");
  find(nccl.comm_destroy, "ncclCommDestroy");
  find(nccl.comm_abort, "ncclCommAbort");
  find(nccl.comm_get_async_error, "ncclCommGetAsyncError");
  find(nccl.get_error_string, "ncclGetErrorString");
  find(nccl.get_last_error, "ncclGetLastError");
  find(nccl.group_start, "ncclGroupStart");
  find(nccl.group_end, "ncclGroupEnd");
  find(nccl.all_reduce, "ncclAllReduce");
  find(nccl.reduce, "ncclReduce");
  find(nccl.reduce_scatter, "ncclReduceScatter");
  find(nccl.broadcast, "ncclBroadcast");
  find(nccl.all_gather, "ncclAllGather");
  int version = 0;
  if (!absent.empty() || nccl.get_version(&version) != ncclSuccess || version < kNcclVersionMin) {
    return missing("the installed version is older than 2.14");
  }
  return nccl;
}

}  // namespace

Result<const Nccl*> open_nccl() {
  static const Result<Nccl> nccl = load();
  if (!nccl.ok()) return nccl.error();
  return &nccl.value();
}

}  // namespace trainyard::cuda
