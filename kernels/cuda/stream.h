// kernels/cuda/stream.h: the stream that a CUDA kernel is launched on, without CUDA's headers.
#pragma once

struct CUstream_st;  // cudaStream_t points to one
