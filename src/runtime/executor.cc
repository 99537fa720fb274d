#include "src/runtime/executor.h"
#include "src/plan/node_groups.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "kernels/alignment.h"
#include "kernels/cpu/flush_denormals.h"
#include "kernels/math/half.h"
#include "src/base/check.h"
#include "src/graph/op.h"
#include "src/runtime/cuda_error.h"

namespace trainyard {
namespace {

/// Copies elements of `size` bytes between the row-major and the channels-last order of `shape`.
void permute(const Shape& shape, size_t size, bool to_channels_last, const std::byte* from,
             std::byte* to) {
  const int64_t C = shape[1], P = shape[2] * shape[3];
  for (int64_t n = 0; n < shape[0]; ++n) {
    for (int64_t c = 0; c < C; ++c) {
      for (int64_t p = 0; p < P; ++p) {
        const auto row_major = static_cast<size_t>((n * C + c) * P + p) * size;
        const auto channels_last = static_cast<size_t>((n * P + p) * C + c) * size;
        if (to_channels_last) {
          std::memcpy(to + channels_last, from + row_major, size);
        } else {
          std::memcpy(to + row_major, from + channels_last, size);
        }
      }
    }
  }
}

/// Returns the index of the first NaN or infinity, or -1.
template <typename T>
int64_t first_non_finite(std::span<const std::byte> bytes) {
  for (size_t i = 0; i * sizeof(T) < bytes.size(); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    if (!std::isfinite(value)) return static_cast<int64_t>(i);
  }
  return -1;
}

template <typename Half>
void widen_as(const std::byte* stored, std::span<std::byte> to) {
  for (size_t i = 0; i < to.size() / sizeof(float); ++i) {
    Half narrow;
    std::memcpy(&narrow, stored + i * sizeof narrow, sizeof narrow);
    const float value = math::widen(narrow);
    std::memcpy(to.data() + i * sizeof value, &value, sizeof value);
  }
}
/// Converts stored 16-bit numbers to floats; their number is given by the size of `to`.
void widen(const TensorInfo& t, const std::byte* stored, std::span<std::byte> to) {
  t.is_f16() ? widen_as<math::F16>(stored, to) : widen_as<math::Bf16>(stored, to);
}

template <typename Half>
void narrow_as(std::span<const std::byte> from, std::byte* stored) {
  for (size_t i = 0; i < from.size() / sizeof(float); ++i) {
    float value;
    std::memcpy(&value, from.data() + i * sizeof value, sizeof value);
    const Half narrow = math::narrow<Half>(value);
    std::memcpy(stored + i * sizeof narrow, &narrow, sizeof narrow);
  }
}
/// Returns floats as `t` stores them in 16 bits.
std::vector<std::byte> narrow(const TensorInfo& t, std::span<const std::byte> floats) {
  std::vector<std::byte> stored(floats.size() / 2);
  t.is_f16() ? narrow_as<math::F16>(floats, stored.data())
             : narrow_as<math::Bf16>(floats, stored.data());
  return stored;
}

bool is_permuted(const TensorInfo& t) {
  return t.layout == Layout::kChannelsLast && !layouts_share_bytes(t.type.shape);
}

/// Fails a check if a kernel would get a pointer with less alignment than its backend requires.
void check_alignment(const Backend& backend, const std::byte* pointer, const std::string& what) {
  TRAINYARD_CHECK(
      reinterpret_cast<uintptr_t>(pointer) % static_cast<uintptr_t>(backend.alignment()) == 0,
      what + " is not at a multiple of the " + std::to_string(backend.alignment()) +
          " bytes that the " + std::string(backend.name()) + " backend requires");
}

}  // namespace

Arena::Arena(Backend& backend, int64_t persistent_bytes, int64_t transient_bytes,
             int64_t workspace_bytes, std::span<const std::byte> mapped)
    : backend_(backend),
      mapped_(mapped),
      persistent_bytes_(round_up(persistent_bytes, backend.alignment())),
      transient_bytes_(round_up(transient_bytes, backend.alignment())),
      workspace_bytes_(round_up(workspace_bytes, backend.alignment())),
      base_(
          static_cast<std::byte*>(backend.allocate(std::max(size_bytes(), backend.alignment())))) {}

Arena::~Arena() { backend_.release(base_); }

PreparedProgram::PreparedProgram(Program program, Backend& backend)
    : program_(std::move(program)), backend_(backend) {
  TRAINYARD_CHECK(program_.alignment % backend.alignment() == 0,
                  "the program is laid out in multiples of " + std::to_string(program_.alignment) +
                      " bytes, the " + std::string(backend.name()) + " backend requires " +
                      std::to_string(backend.alignment()));
  kernels_.reserve(program_.order.size());
  while (kernels_.size() < program_.order.size()) {
    const auto nodes = std::span<const NodeId>(program_.order)
                           .subspan(kernels_.size(), joinable_nodes(program_, kernels_.size()));
    std::unique_ptr<Kernel> group;
    if (nodes.size() > 1) group = backend.prepare_group(program_.graph, nodes);
    const bool is_group = group != nullptr;
    for (const NodeId k : nodes) {
      kernels_.push_back(is_group ? std::move(group)
                                  : backend.prepare(program_.graph, program_.graph.node(k)));
    }
  }
  lanes_ = lanes_of_kernels();
  std::array<int64_t, 2> bytes{};  // by lane
  for (size_t step = 0; step < kernels_.size(); ++step) {
    if (kernels_[step] == nullptr) continue;
    int64_t& most = bytes[is_aside(step) ? 1 : 0];
    most = std::max(most, round_up(kernels_[step]->workspace_bytes(), backend.alignment()));
  }
  main_workspace_bytes_ = bytes[0];
  program_.memory.workspace_bytes = bytes[0] + bytes[1];
}

std::vector<LaneStep> PreparedProgram::lanes_of_kernels() const {
  std::vector<LaneStep> lanes = program_.lanes;
  size_t kernel = 0;
  for (size_t step = 0; step < lanes.size(); ++step) {
    if (kernels_[step] != nullptr) kernel = step;
    lanes[kernel].joins |= lanes[step].joins;
  }
  return lanes;
}

Executor::Executor(PreparedProgram prepared, Arena& arena)
    : prepared_(std::move(prepared)), arena_(arena) {
  const Program& program = prepared_.program_;
  TRAINYARD_CHECK(program.persistent_bytes <= arena.transient() - arena.persistent() &&
                      program.transient_bytes <= arena.workspace() - arena.transient() &&
                      program.memory.workspace_bytes <= arena.workspace_bytes(),
                  "the program does not fit into the arena");
  TRAINYARD_CHECK(arena.mapped().empty() || prepared_.backend_.computes_in_host_memory(),
                  "a device does not read the host's files");
  const auto use = [&](const std::byte* begin, int64_t bytes) {
    used_bytes_ = std::max(used_bytes_, begin + bytes - arena.persistent());
  };
  const auto bind = [&](TensorId id) -> std::byte* {
    if (id == kNoTensor) return nullptr;
    const Placement& place = program.placements[static_cast<size_t>(id)];
    if (place.segment != Segment::kMapped) use(address(id), place.size_bytes);
    check_alignment(prepared_.backend_, address(id), program.graph.tensor(id).name);
    return address(id);
  };
  check_alignment(prepared_.backend_, arena.workspace(), "the workspace");
  const char* check = std::getenv("TRAINYARD_CHECK_NUMERICS");
  checks_numerics_ = check != nullptr && std::string_view(check) == "1";
  waits_after_nodes_ = checks_numerics_;
  args_.resize(program.order.size());
  size_t kernel = 0;
  for (size_t step = 0; step < program.order.size(); ++step) {
    const Node& node = program.graph.node(program.order[step]);
    if (prepared_.kernels_[step] != nullptr) kernel = step;
    if (const auto copy = written_copy(program.graph, node)) {
      copies_[node.inputs[0]] = node.inputs[*copy];
    }
    KernelArgs& args = args_[kernel];
    for (const TensorId id : node.inputs) args.inputs.push_back(bind(id));
    for (const TensorId id : node.outputs) args.outputs.push_back(bind(id));
    for (const int64_t i : node.op->mutated_inputs(node)) {
      args.mutated.push_back(bind(node.inputs.at(static_cast<size_t>(i))));
    }
    const int64_t workspace_bytes =
        round_up(prepared_.kernels_[kernel]->workspace_bytes(), prepared_.backend_.alignment());
    if (workspace_bytes == 0) continue;
    std::byte* const workspace =
        arena.workspace() + (prepared_.is_aside(kernel) ? prepared_.main_workspace_bytes_ : 0);
    args.workspace = workspace;
    use(workspace, workspace_bytes);
  }
}

std::byte* Executor::address(TensorId id) const {
  const Placement& place = prepared_.program_.placements.at(static_cast<size_t>(id));
  if (place.segment == Segment::kMapped) {
    TRAINYARD_CHECK(place.offset_bytes + place.size_bytes <= std::ssize(arena_.mapped()),
                    program().graph.tensor(id).name + " ends after its file");
    // Kernels take it as an input only, because verify() refuses a program that updates it.
    return const_cast<std::byte*>(arena_.mapped().data()) + place.offset_bytes;
  }
  return (place.segment == Segment::kPersistent ? arena_.persistent() : arena_.transient()) +
         place.offset_bytes;
}

void Executor::write(TensorId id, std::span<const std::byte> bytes) {
  const TensorInfo& t = program().graph.tensor(id);
  TRAINYARD_CHECK(static_cast<int64_t>(bytes.size()) == t.type.bytes(),
                  t.name + ": " + std::to_string(bytes.size()) + " bytes written, it has " +
                      std::to_string(t.type.bytes()));
  if (!is_permuted(t)) return write(id, bytes, 0);
  // Used by tests and tools only: a program's inputs and weights are row-major.
  std::vector<std::byte> permuted(bytes.size());
  permute(t.type.shape, size_of(t.type.dtype), true, bytes.data(), permuted.data());
  write_stored(id, permuted);
}

void Executor::write(TensorId id, std::span<const std::byte> bytes, size_t offset) {
  const TensorInfo& t = program().graph.tensor(id);
  TRAINYARD_CHECK(!is_permuted(t) && offset + bytes.size() <= static_cast<size_t>(t.type.bytes()),
                  t.name + ": a part of it that it does not have");
  TRAINYARD_CHECK(!t.is_half() || t.role == Role::kParameter,
                  t.name + " is computed, it cannot be written");
  TRAINYARD_CHECK(!t.is_mapped(), t.name + " is mapped, it cannot be written");
  if (t.is_half()) return write_narrow(id, bytes, offset);
  if (const auto copy = copies_.find(id); copy != copies_.end()) {
    write_narrow(copy->second, bytes, offset);
  }
  write_stored(id, bytes, offset);
}

void Executor::write_stored(TensorId id, std::span<const std::byte> bytes, size_t offset) {
  prepared_.backend_.copy_to_device(address(id) + offset, bytes.data(), std::ssize(bytes));
}

// Rounds a part at a time, so that the rounded numbers of a large tensor do not exist twice.
void Executor::write_narrow(TensorId id, std::span<const std::byte> floats, size_t offset) {
  constexpr size_t kPartBytes = size_t{1} << 20;
  const TensorInfo& t = program().graph.tensor(id);
  for (size_t at = 0; at < floats.size(); at += kPartBytes) {
    const auto part = floats.subspan(at, std::min(kPartBytes, floats.size() - at));
    write_stored(id, narrow(t, part), (offset + at) / 2);
  }
}

void* Executor::place_to_write(TensorId id) const {
  const TensorInfo& t = program().graph.tensor(id);
  TRAINYARD_CHECK(!t.is_half() && !is_permuted(t) && !copies_.contains(id) && !t.is_mapped(),
                  t.name + " is not written in its own type only");
  return address(id);
}

const void* Executor::place_to_read(TensorId id) const {
  const TensorInfo& t = program().graph.tensor(id);
  TRAINYARD_CHECK(!is_permuted(t), t.name + " is not stored row-major");
  return address(id);
}

void Executor::read(TensorId id, std::span<std::byte> bytes) const {
  const TensorInfo& t = program().graph.tensor(id);
  TRAINYARD_CHECK(static_cast<int64_t>(bytes.size()) == t.type.bytes(),
                  t.name + ": " + std::to_string(bytes.size()) + " bytes read, it has " +
                      std::to_string(t.type.bytes()));
  copy_out(id, bytes, 0);
  if (!is_permuted(t)) return;
  const std::vector<std::byte> permuted(bytes.begin(), bytes.end());
  permute(t.type.shape, size_of(t.type.dtype), false, permuted.data(), bytes.data());
}

void Executor::read(TensorId id, std::span<std::byte> bytes, size_t offset) const {
  const TensorInfo& t = program().graph.tensor(id);
  TRAINYARD_CHECK(!is_permuted(t) && offset + bytes.size() <= static_cast<size_t>(t.type.bytes()),
                  t.name + ": a part of it that it does not have");
  copy_out(id, bytes, offset);
}

int64_t Executor::stored_bytes(TensorId id) const {
  return program().graph.tensor(id).stored_bytes();
}

void Executor::begin_read(TensorId id, std::byte* host) const {
  prepared_.backend_.begin_copy_to_host(host, place_to_read(id), stored_bytes(id));
}

void Executor::take(TensorId id, const std::byte* host, std::span<std::byte> bytes) const {
  const TensorInfo& t = program().graph.tensor(id);
  TRAINYARD_CHECK(static_cast<int64_t>(bytes.size()) == t.type.bytes(), t.name + ": its size");
  if (t.is_half()) {
    widen(t, host, bytes);
  } else {
    std::memcpy(bytes.data(), host, bytes.size());
  }
}

void Executor::copy_out(TensorId id, std::span<std::byte> bytes, size_t offset) const {
  prepared_.backend_.synchronize();
  const TensorInfo& t = program().graph.tensor(id);
  if (!t.is_half()) {
    prepared_.backend_.copy_to_host(bytes.data(), address(id) + offset,
                                    static_cast<int64_t>(bytes.size()));
    return;
  }
  std::vector<std::byte> stored(bytes.size() / 2);
  prepared_.backend_.copy_to_host(stored.data(), address(id) + offset / 2,
                                  static_cast<int64_t>(stored.size()));
  widen(t, stored.data(), bytes);
}

void Executor::run() {
  if (waits_after_nodes_) return run_kernels();
  if (runs_ == Runs::kFirst) {
    recording_ = prepared_.backend_.record([&] { run_kernels(); });
  }
  if (runs_ != Runs::kMore) runs_ = runs_ == Runs::kNone ? Runs::kFirst : Runs::kMore;
  if (recording_ != nullptr) {
    recording_->replay();
  } else {
    run_kernels();
  }
}

void Executor::run_kernels() {
  const kernels::cpu::FlushDenormals while_kernels_run;
  for (size_t step = 0; step < args_.size(); ++step) {
    if (auto& kernel = prepared_.kernels_[step]; kernel != nullptr) {
      enter_lane(step);
      kernel->run(args_[step]);
    }
    if (waits_after_nodes_) wait_for(step);
    if (checks_numerics_) check_numerics(step);
  }
  if (!prepared_.lanes_.empty()) prepared_.backend_.enter_lane(Lane::kMain, true);
}

void Executor::enter_lane(size_t step) {
  if (prepared_.lanes_.empty()) return;
  const LaneStep& at = prepared_.lanes_[step];
  prepared_.backend_.enter_lane(at.lane, at.waits_for_all());
}

void Executor::wait_for(size_t step) const {
  try {
    prepared_.backend_.synchronize();
  } catch (
      const CudaError& e) {  // caused by this kernel, since all earlier ones have been waited for
    const Node& node = program().graph.node(program().order[step]);
    throw CudaError("node " + node.name + " (" + std::string(node.op->type()) + "): " + e.what(),
                    e.code(), e.fault());
  }
}

void Executor::check_numerics(size_t step) const {
  const Graph& graph = program().graph;
  const Node& node = graph.node(program().order[step]);
  std::vector<TensorId> written = node.outputs;
  for (const int64_t i : node.op->mutated_inputs(node)) {
    written.push_back(node.inputs.at(static_cast<size_t>(i)));
  }
  for (const TensorId id : written) {
    if (id == kNoTensor || !is_float(graph.tensor(id).type.dtype)) continue;
    const TensorInfo& t = graph.tensor(id);
    std::vector<std::byte> bytes(static_cast<size_t>(t.type.bytes()));
    read(id, bytes);
    const int64_t at = t.type.dtype == DType::kF64 ? first_non_finite<double>(bytes)
                                                   : first_non_finite<float>(bytes);
    if (at >= 0) {
      throw NumericsError("node " + node.name + " (" + std::string(node.op->type()) +
                          ") computed a value that is not finite: " + t.name + " " +
                          t.type.shape.to_string() + ", element " + std::to_string(at));
    }
  }
}

}  // namespace trainyard
