// server/rpc/element_count.h: counts a request's elements before it is parsed.
//
// Two bytes on the wire can become a message of 250 bytes in memory: 4 MiB of empty layers took 528
// MiB.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/zero_copy_stream.h>

#include <cstddef>

#include "src/base/result.h"

namespace trainyard::server {

/// The limit for a caller's request: as many values as a spec file may have. A request with this
/// many empty layers takes 26 MiB.
inline constexpr size_t kRequestElementsMax = 100'000;

/// Scans the bytes of a message of this type and counts its elements: nested messages, entries of
/// lists and maps, and unknown fields. A packed list counts as one element. Allocates no memory.
/// INVALID_ARGUMENT/REQUEST_TOO_LARGE, with the limit, as soon as there are more;
/// INVALID_ARGUMENT/REQUEST_MALFORMED for messages nested deeper than 100. Other damage is left to
/// the parser, which stops at the same place.
Status check_element_count(google::protobuf::io::ZeroCopyInputStream& bytes,
                           const google::protobuf::Descriptor& type, size_t elements_max);

}  // namespace trainyard::server
