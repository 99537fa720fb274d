// src/runtime/cuda/dnn.h: what every use of cuDNN's graph API shares: descriptors, and a plan of an
// engine.
//
// cuDNN is told what is computed as a small graph of descriptors (tensors and operations) and
// proposes engines for it. Which one is taken is decided when a kernel is prepared, among those
// that are deterministic, round as the problem says, need no more workspace than the budget, and of
// which a plan can be made: the first, or for convolutions a recorded one or the fastest
// (src/runtime/algorithms.h).
#pragma once

#include <cudnn.h>

#include <array>
#include <cstdint>
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

/// What addresses that are handed to a plan are a multiple of, at least: those of the program's
/// arena and of our pieces of the workspace are.
constexpr int64_t kDnnAlignment = 16;

namespace dnn {

// Which type an attribute's values have is a property of the attribute; here C++'s type says it.
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

/// Names an attribute in an error.
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

/// Of four dimensions. A virtual one lies between two operations of a graph and has no memory.
/// `alignment`: what its address is a multiple of, in bytes.
BackendDescriptor make_tensor(int64_t name, const std::array<int64_t, 4>& size,
                              const std::array<int64_t, 4>& stride, cudnnDataType_t type,
                              bool is_virtual = false, int64_t alignment = kDnnAlignment);
/// One number of F32, which the host gives with each run.
BackendDescriptor make_scalar(int64_t name);
/// Without a device, unless `handle` is given.
BackendDescriptor make_graph(std::initializer_list<cudnnBackendDescriptor_t> operations,
                             cudnnHandle_t handle);
BackendDescriptor make_graph(std::span<const cudnnBackendDescriptor_t> operations,
                             cudnnHandle_t handle);

}  // namespace dnn

/// How a graph's numbers may be rounded.
struct DnnArithmetic {
  kernels::cuda::Format operands = kernels::cuda::Format::kF32;
  bool tf32 = false;  // operands of F32 may be rounded to TF32
};

/// What a heuristic of cuDNN proposes, best first; nothing where it knows no engine. `properties`:
/// of a device that need not be there, for tests.
std::vector<BackendDescriptor> propose_engines(cudnnBackendDescriptor_t graph,
                                               cudnnBackendHeurMode_t mode,
                                               cudnnBackendDescriptor_t properties = nullptr);
/// Whether an engine may be used: deterministic, and sums in F32 of what is stored - in particular
/// no TF32, which would round F32 operands, unless that is allowed.
bool is_allowed(cudnnBackendDescriptor_t engine_config, const DnnArithmetic& arithmetic);

/// An engine and its knobs: enough to make the same plan again.
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
/// As it is recorded, and back; nothing for other words.
std::string words_of(const EngineChoice& choice);
std::optional<EngineChoice> parse_engine(std::string_view words);

enum class Engines : uint8_t {
  kFast,
  /// Plain loops, which take any shape and up to 150 times as long: a last resort.
  kNaive,
};
/// What both heuristics propose and is_allowed(), best first, each once.
std::vector<EngineChoice> allowed_engines(cudnnBackendDescriptor_t graph,
                                          const DnnArithmetic& arithmetic, Engines which,
                                          cudnnBackendDescriptor_t properties = nullptr);

/// An engine and its knobs as they were chosen. The config refers to the others.
struct RestoredEngine {
  std::vector<BackendDescriptor> parts;
  BackendDescriptor config;
};
/// Throws CudaError if the library does not take the choice for this graph. `properties`: as above.
RestoredEngine restore_engine(cudnnBackendDescriptor_t graph, const EngineChoice& choice,
                              cudnnBackendDescriptor_t properties = nullptr);

/// A plan of an engine, and how it is run. Its graph was made for the device, and outlives it.
class DnnPlan {
 public:
  /// Of the first engine that may be used; nothing if cuDNN has none.
  static std::optional<DnnPlan> find(const Device& device, cudnnBackendDescriptor_t graph,
                                     const DnnArithmetic& arithmetic, int64_t workspace_max);
  /// Of a choice. Nothing if the library does not take it for this graph, or it may not be used.
  static std::optional<DnnPlan> restore(const Device& device, cudnnBackendDescriptor_t graph,
                                        const DnnArithmetic& arithmetic, int64_t workspace_max,
                                        const EngineChoice& choice);
  int64_t workspace_bytes() const { return workspace_bytes_; }
  const EngineChoice& choice() const { return choice_; }
  /// Asynchronous on the device's stream. `names` of the graph's tensors that have memory, and
  /// where they are.
  void run(std::span<const int64_t> names, std::span<const void* const> pointers,
           void* workspace) const;

 private:
  explicit DnnPlan(const Device& device) : device_(&device) {}
  bool take(RestoredEngine engine, int64_t workspace_max);

  const Device* device_;
  RestoredEngine engine_;  // before the plan, which refers to it
  BackendDescriptor plan_;
  EngineChoice choice_;
  int64_t workspace_bytes_ = 0;
};

}  // namespace trainyard::cuda
