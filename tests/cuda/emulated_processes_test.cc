// Catches: a process of a job on GPUs that does not end when another one was killed, or when its
// own link breaks, after the steps have been recorded.
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/engine/rank_children.h"
#include "tests/engine/train_support.h"
#include "tests/support/must_end.h"

namespace trainyard {
namespace {

using testing::make_dataset;
using testing::RankChildren;
using testing::start_rank_children;
using testing::Workspace;

/// Four processes with a GPU each, with their dataset and results in the workspace.
RankChildren gpus_of(const Workspace& w) {
  return {.program = "gpu_rank_process", .dataset = w / "dataset", .work = w / "work"};
}

TEST(EmulatedProcesses, F32AKilledOneEndsTheOthers) {
  const Workspace w;
  make_dataset(w, true, 100);
  for (const size_t killed : {2, 0}) {  // the first has NCCL's hub
    SCOPED_TRACE(killed);
    auto children = start_rank_children(gpus_of(w));
    EXPECT_EQ(children[killed]->line("step 5"), "step 5");
    children[killed]->kill(SIGKILL);
    must_end("the job", [&] {
      for (size_t p = 0; p < children.size(); ++p) {
        if (p == killed) continue;
        const std::string name = std::to_string(killed);
        EXPECT_EQ(children[p]->line("lost"), "lost " + name + ": rank " + name +
                                                 " (127.0.0.1) has ended: its connection broke");
        EXPECT_EQ(children[p]->wait(), 1);
      }
    });
  }
}

TEST(EmulatedProcesses, F32ABrokenLinkEndsAll) {
  const Workspace w;
  make_dataset(w, true, 100);
  RankChildren all = gpus_of(w);
  all.environment = [](int64_t index) {
    return index == 1 ? std::string("TRAINYARD_FAKE_CUDA_FAULT=link=200") : std::string();
  };
  auto children = start_rank_children(all);
  must_end("the job", [&] {
    EXPECT_EQ(children[1]->line("fault"),
              "fault rank 1 (devices/gpu-1): exchanging gradients on GPU 1: an error of NCCL (NCCL "
              "error 6)");
    for (const auto& child : children) EXPECT_EQ(child->wait(), 1);
    for (const size_t p : {0, 2, 3}) {
      // One that has ended because of the first may be named.
      EXPECT_NE(children[p]->line("lost").find(" has aborted the job"), std::string::npos);
    }
  });
}

}  // namespace
}  // namespace trainyard
