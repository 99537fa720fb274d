// src/runtime/cuda/dnn.h: helpers for cuDNN's graph API: descriptors, and the plan of an engine.
//
// The computation is described to cuDNN as a small graph of descriptors (tensors and operations),
// for which cuDNN proposes engines. When a kernel is prepared, an engine is chosen among those that
// are deterministic, round as the problem requires, keep within the workspace limit, and have a
// plan. The first one is chosen, or for convolutions a recorded one or the fastest
// (src/runtime/algorithms.h).
#pragma once

#include <cudnn.h>

#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/view.h"
#include "src/base/handle.h"
#include "src/runtime/cuda/device.h"

namespace trainyard::cuda {

using BackendDescriptor = Handle<void, cudnnBackendDestroyDescriptor>;

/// Minimum alignment in bytes of all addresses passed to a plan: those in the program's arena and
/// in our parts of the workspace have it.
constexpr int64_t kDnnAlignment = 16;

namespace dnn {

// The type of an attribute's values for each C++ type.
template <typename T>
constexpr cudnnBackendAttributeType_t kTypeOf = CUDNN_TYPE_VOID_PTR;
template <>
inline constexpr cudnnBackendAttributeType_t kTypeOf<int64_t> = CUDNN_TYPE_INT64;
template <>
inline constexpr cudnnBackendAttributeType_t kTypeOf<float> = CUDNN_TYPE_FLOAT;
template <>
inline constexpr cudnnBackendAttributeType_t kTypeOf<bool> = CUDNN_TYPE_BOOLEAN;
template <>
inline constexpr cudnnBackendAttributeType_t kTypeOf<cudnnHandle_t> = CUDNN_TYPE_HANDLE;
template <>
inline constexpr cudnnBackendAttributeType_t kTypeOf<cudnnDataType_t> = CUDNN_TYPE_DATA_TYPE;
template <>
inline constexpr cudnnBackendAttributeType_t kTypeOf<cudnnConvolutionMode_t> =
    CUDNN_TYPE_CONVOLUTION_MODE;
template <>
inline constexpr cudnnBackendAttributeType_t kTypeOf<cudnnPointwiseMode_t> =
    CUDNN_TYPE_POINTWISE_MODE;
template <>
inline constexpr cudnnBackendAttributeType_t kTypeOf<cudnnNanPropagation_t> =
    CUDNN_TYPE_NAN_PROPOGATION;
template <>
inline constexpr cudnnBackendAttributeType_t kTypeOf<cudnnReduceTensorOp_t> =
    CUDNN_TYPE_REDUCTION_OPERATOR_TYPE;
template <>
inline constexpr cudnnBackendAttributeType_t kTypeOf<cudnnBackendHeurMode_t> = CUDNN_TYPE_HEUR_MODE;
template <>
inline constexpr cudnnBackendAttributeType_t kTypeOf<cudnnBackendKnobType_t> = CUDNN_TYPE_KNOB_TYPE;

/// The name of an attribute in an error message.
std::string words(const char* what, cudnnBackendAttributeName_t name);

BackendDescriptor create(cudnnBackendDescriptorType_t type);
void finalize(const BackendDescriptor& d, const char* what);

template <typename T, size_t kCount>
void set(const BackendDescriptor& d, cudnnBackendAttributeName_t name,
         const std::array<T, kCount>& values) {
  check(cudnnBackendSetAttribute(d.get(), name, kTypeOf<T>, kCount, values.data()),
        words("cudnnBackendSetAttribute", name));
}
template <typename T>
void set(const BackendDescriptor& d, cudnnBackendAttributeName_t name, const T& value) {
  set(d, name, std::array<T, 1>{value});
}
void set(const BackendDescriptor& d, cudnnBackendAttributeName_t name,
         std::initializer_list<cudnnBackendDescriptor_t> values);
void set(const BackendDescriptor& d, cudnnBackendAttributeName_t name,
         std::span<const cudnnBackendDescriptor_t> values);

template <typename T>
T get(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name) {
  T value{};
  int64_t count = 0;
  check(cudnnBackendGetAttribute(d, name, kTypeOf<T>, 1, &count, &value),
        words("cudnnBackendGetAttribute", name));
  return value;
}

cudnnDataType_t data_type(kernels::cuda::Format format);

/// Returns a tensor. A virtual tensor connects two operations of a graph and has no memory.
/// `alignment` is that of its address, in bytes.
template <size_t kRank>
BackendDescriptor make_tensor(int64_t name, const std::array<int64_t, kRank>& size,
                              const std::array<int64_t, kRank>& stride, cudnnDataType_t type,
                              bool is_virtual = false, int64_t alignment = kDnnAlignment) {
  BackendDescriptor t = create(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  set(t, CUDNN_ATTR_TENSOR_UNIQUE_ID, name);
  set(t, CUDNN_ATTR_TENSOR_DATA_TYPE, type);
  set(t, CUDNN_ATTR_TENSOR_DIMENSIONS, size);
  set(t, CUDNN_ATTR_TENSOR_STRIDES, stride);
  set(t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, alignment);
  set(t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, is_virtual);
  finalize(t, "a cuDNN tensor");
  return t;
}
/// Returns an F32 scalar whose value the host passes at each run.
BackendDescriptor make_scalar(int64_t name);
/// Needs no device unless `handle` is given.
BackendDescriptor make_graph(std::initializer_list<cudnnBackendDescriptor_t> operations,
                             cudnnHandle_t handle);
BackendDescriptor make_graph(std::span<const cudnnBackendDescriptor_t> operations,
                             cudnnHandle_t handle);

}  // namespace dnn

/// How the numbers of a graph may be rounded.
struct DnnArithmetic {
  kernels::cuda::Format operands = kernels::cuda::Format::kF32;
  bool tf32 = false;  // F32 operands may be rounded to TF32
};

/// Returns the engines that a cuDNN heuristic proposes, best first; empty if it knows none.
/// `properties` describe a device that need not exist, for tests.
std::vector<BackendDescriptor> propose_engines(cudnnBackendDescriptor_t graph,
                                               cudnnBackendHeurMode_t mode,
                                               cudnnBackendDescriptor_t properties = nullptr);
/// Whether an engine may be used: it must be deterministic, and sum the stored values in F32. In
/// particular it may round F32 operands to TF32 only if that is allowed.
bool is_allowed(cudnnBackendDescriptor_t engine_config, const DnnArithmetic& arithmetic);

/// An engine and its knobs, sufficient to create the same plan again.
struct EngineChoice {
  int64_t engine = -1;
  struct Knob {
    int64_t type, value;
    bool operator==(const Knob&) const = default;
  };
  std::vector<Knob> knobs;
  bool operator==(const EngineChoice&) const = default;
};
EngineChoice choice_of(cudnnBackendDescriptor_t engine_config);
/// Convert a choice to and from its recorded form; nothing for other texts.
std::string words_of(const EngineChoice& choice);
std::optional<EngineChoice> parse_engine(std::string_view words);

enum class Engines : uint8_t {
  kFast,
  /// Plain loops that support any shape but are up to 150 times slower: the last resort.
  kNaive,
};
/// Returns the engines that both heuristics propose and is_allowed() accepts, best first, without
/// duplicates.
std::vector<EngineChoice> allowed_engines(cudnnBackendDescriptor_t graph,
                                          const DnnArithmetic& arithmetic, Engines which,
                                          cudnnBackendDescriptor_t properties = nullptr);

/// An engine with its chosen knobs. `config` refers to `parts`.
struct RestoredEngine {
  std::vector<BackendDescriptor> parts;
  BackendDescriptor config;
};
/// Throws CudaError if cuDNN does not accept the choice for this graph. `properties` as for
/// propose_engines().
RestoredEngine restore_engine(cudnnBackendDescriptor_t graph, const EngineChoice& choice,
                              cudnnBackendDescriptor_t properties = nullptr);

/// An execution plan of an engine. Its graph must be created for the device and outlive the plan.
class DnnPlan {
 public:
  /// Whether a plan runs, as a trial by the caller shows.
  using Trial = std::function<bool(const DnnPlan&)>;
  /// Returns the plan of the first engine that the library proposes, that may be used and that
  /// passes the trial; nothing if there is none.
  static std::optional<DnnPlan> find(const Device& device, cudnnBackendDescriptor_t graph,
                                     const DnnArithmetic& arithmetic, int64_t workspace_max,
                                     const Trial& trial);
  /// Returns the plan of a choice. Nothing if cuDNN does not accept it for this graph, or it may
  /// not be used.
  static std::optional<DnnPlan> restore(const Device& device, cudnnBackendDescriptor_t graph,
                                        const DnnArithmetic& arithmetic, int64_t workspace_max,
                                        const EngineChoice& choice);
  int64_t workspace_bytes() const { return workspace_bytes_; }
  const EngineChoice& choice() const { return choice_; }
  /// Asynchronous on the device's stream. `names` are the graph's tensors that have memory,
  /// `pointers` their addresses.
  void run(std::span<const int64_t> names, std::span<const void* const> pointers,
           void* workspace) const;

 private:
  explicit DnnPlan(const Device& device) : device_(&device) {}
  bool take(RestoredEngine engine, int64_t workspace_max);

  const Device* device_;
  RestoredEngine engine_;  // before plan_, which refers to it
  BackendDescriptor plan_;
  EngineChoice choice_;
  int64_t workspace_bytes_ = 0;
};

}  // namespace trainyard::cuda
