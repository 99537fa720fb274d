#include "tests/support/watching_backend.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "src/base/check.h"

namespace trainyard::testing {
namespace {

constexpr int64_t kLine = kHostAlignment;
constexpr int64_t kGuardBytes = 4096;
constexpr int kGuard = 0xC3;
// The first byte makes a NaN in both floating-point types.
constexpr std::array<int, 2> kPoison = {0xFF, 0xA5};

}  // namespace

class WatchedKernel final : public Kernel {
 public:
  WatchedKernel(std::unique_ptr<Kernel> inner, WatchingBackend& backend, const Graph& graph,
                const Node& node)
      : inner_(std::move(inner)), backend_(backend), name_(node.name) {
    const auto bytes = [&](TensorId id) {
      return id == kNoTensor ? 0 : graph.tensor(id).stored_bytes();
    };
    for (const TensorId id : node.inputs) inputs_.push_back(bytes(id));
    for (const TensorId id : node.outputs) outputs_.push_back(bytes(id));
    for (const int64_t i : node.op->mutated_inputs(node)) {
      mutated_.push_back(bytes(node.inputs.at(static_cast<size_t>(i))));
    }
  }

  int64_t workspace_bytes() const override { return inner_->workspace_bytes(); }

  void run(const KernelArgs& args) override {
    using Range = WatchingBackend::Range;
    const auto range = [](const void* p, int64_t bytes) {
      return Range{static_cast<std::byte*>(const_cast<void*>(p)), p == nullptr ? 0 : bytes};
    };
    std::vector<Range> reads, writes;
    for (size_t i = 0; i < inputs_.size(); ++i) reads.push_back(range(args.inputs[i], inputs_[i]));
    const auto is_read = [&](const Range& w) {
      return std::any_of(reads.begin(), reads.end(), [&](const Range& r) {
        return r.begin < w.begin + w.bytes && w.begin < r.begin + r.bytes;
      });
    };
    for (size_t i = 0; i < outputs_.size(); ++i) {
      writes.push_back(range(args.outputs[i], outputs_[i]));
    }
    for (size_t i = 0; i < mutated_.size(); ++i) {
      writes.push_back(range(args.mutated[i], mutated_[i]));
    }
    const Range workspace = range(args.workspace, inner_->workspace_bytes());
    writes.push_back(workspace);
    if (workspace.bytes > 0) {
      const int64_t end = workspace.begin + workspace.bytes - backend_.memory_;
      backend_.workspace_end_ = std::max(backend_.workspace_end_, end);
    }
    for (const Range& w : writes) {
      if (!is_read(w)) backend_.poison(w, runs_);
    }
    inner_->run(args);
    for (const Range& w : writes) backend_.mark_changed(w);
    if (++backend_.kernels_run_ % backend_.compare_every_ == 0) backend_.compare(name_);
    ++runs_;
  }

 private:
  std::unique_ptr<Kernel> inner_;
  WatchingBackend& backend_;
  std::string name_;
  std::vector<int64_t> inputs_, outputs_, mutated_;  // sizes in bytes
  int runs_ = 0;
};

WatchingBackend::WatchingBackend(Backend& inner, int64_t compare_every)
    : inner_(inner), compare_every_(compare_every) {}

WatchingBackend::~WatchingBackend() = default;

std::unique_ptr<Kernel> WatchingBackend::prepare(const Graph& graph, const Node& node) {
  return std::make_unique<WatchedKernel>(inner_.prepare(graph, node), *this, graph, node);
}

void* WatchingBackend::allocate(int64_t bytes) {
  TRAINYARD_CHECK(memory_ == nullptr, "a program asks for memory once");
  bytes_ = bytes;
  memory_ = static_cast<std::byte*>(HostBackend::allocate(bytes + kGuardBytes));
  std::memset(memory_ + bytes, kGuard, static_cast<size_t>(kGuardBytes));
  copy_.assign(memory_, memory_ + bytes + kGuardBytes);
  touched_.assign(static_cast<size_t>((bytes + kLine - 1) / kLine), false);
  return memory_;
}

void WatchingBackend::release(void* memory) noexcept {
  HostBackend::release(memory);
  memory_ = nullptr;
}

void WatchingBackend::copy_to_device(void* device, const void* host, int64_t bytes) {
  HostBackend::copy_to_device(device, host, bytes);
  auto* begin = static_cast<std::byte*>(device);
  std::memcpy(copy_.data() + (begin - memory_), host, static_cast<size_t>(bytes));
  for (int64_t at = begin - memory_; at < begin - memory_ + bytes; at += kLine) {
    touched_[static_cast<size_t>(at / kLine)] = true;
  }
}

void WatchingBackend::poison(const Range& range, int run) {
  if (range.bytes == 0) return;  // an empty tensor has no address
  const int value = kPoison[static_cast<size_t>(run) % kPoison.size()];
  std::memset(range.begin, value, static_cast<size_t>(range.bytes));
  std::memset(copy_.data() + (range.begin - memory_), value, static_cast<size_t>(range.bytes));
}

void WatchingBackend::mark_changed(const Range& range) {
  const int64_t first = range.begin - memory_;
  for (int64_t at = first; at < first + range.bytes; at += kLine) {
    const auto size = static_cast<size_t>(std::min(kLine, first + range.bytes - at));
    if (std::memcmp(memory_ + at, copy_.data() + at, size) == 0) continue;
    std::memcpy(copy_.data() + at, memory_ + at, size);
    touched_[static_cast<size_t>(at / kLine)] = true;
  }
}

void WatchingBackend::compare(const std::string& after) {
  if (!fault_.empty() || std::memcmp(memory_, copy_.data(), copy_.size()) == 0) return;
  const auto [byte, expected] = std::mismatch(memory_, memory_ + copy_.size(), copy_.begin());
  fault_ = "byte " + std::to_string(byte - memory_) + " of " + std::to_string(bytes_) +
           " was written by '" + after + "'" +
           (compare_every_ > 1 ? " or one of the nodes before it" : "") + ", which may not";
}

int64_t WatchingBackend::touched_end(int64_t end) const {
  int64_t line = end / kLine;
  while (line > 0 && !touched_[static_cast<size_t>(line - 1)]) --line;
  return line * kLine;
}

const std::string& WatchingBackend::fault() {
  compare("the last node");
  return fault_;
}

}  // namespace trainyard::testing
