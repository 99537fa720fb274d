// src/runtime/reference_kernels.h: the tables of the reference backend, one per family file.
#pragma once

#include <span>

#include "src/runtime/kernel_table.h"

namespace trainyard {

struct ReferenceContext {};  // plain loops share nothing
using ReferenceEntry = KernelEntry<ReferenceContext>;

std::span<const ReferenceEntry> reference_elementwise_kernels();
std::span<const ReferenceEntry> reference_activation_kernels();
std::span<const ReferenceEntry> reference_box_kernels();
std::span<const ReferenceEntry> reference_image_kernels();
std::span<const ReferenceEntry> reference_dense_kernels();
std::span<const ReferenceEntry> reference_sequence_kernels();
std::span<const ReferenceEntry> reference_training_kernels();
std::span<const ReferenceEntry> reference_update_kernels();

}  // namespace trainyard
