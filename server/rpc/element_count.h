// server/rpc/element_count.h: how much a request holds, before it is parsed.
//
// Two bytes on the wire can become a message of 250 in memory: 4 MiB of empty layers took 528 MiB.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/zero_copy_stream.h>

#include <cstddef>

#include "src/base/result.h"

namespace trainyard::server {

/// Of a caller's request; as many values as a spec file may have. One of this many empty layers
/// takes 26 MiB.
inline constexpr size_t kRequestElementsMax = 100'000;

/// Walks over the bytes of a message of this type and counts its elements: messages in it, entries
/// of lists and maps, and fields that are not known. A packed list is one. Takes no memory.
/// INVALID_ARGUMENT/REQUEST_TOO_LARGE with the limit, as soon as there are more; and
/// INVALID_ARGUMENT/REQUEST_MALFORMED for messages nested deeper than 100. Other damage is left to
/// the parser, which stops at the same place.
Status check_element_count(google::protobuf::io::ZeroCopyInputStream& bytes,
                           const google::protobuf::Descriptor& type, size_t elements_max);

}  // namespace trainyard::server
