#include "server/rpc/element_count.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <limits>
#include <string>

namespace trainyard::server {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;

constexpr int kDepthMax = 100;  // the parser's own limit

class Counter {
 public:
  Counter(google::protobuf::io::ZeroCopyInputStream& bytes, size_t elements_max)
      : input_(&bytes), elements_max_(elements_max) {
    input_.SetTotalBytesLimit(std::numeric_limits<int>::max());
  }

  /// Returns true if the whole message was read; false if a limit was exceeded or the bytes are
  /// malformed. `type` is null inside unknown fields; `group` is the field number of the group that
  /// is read, or 0.
  bool count(const Descriptor* type, int depth, int group) {
    if (depth > kDepthMax) {
      too_deep_ = true;
      return false;
    }
    while (const uint32_t tag = input_.ReadTag()) {
      const int number = WireFormatLite::GetTagFieldNumber(tag);
      const auto wire = WireFormatLite::GetTagWireType(tag);
      if (wire == WireFormatLite::WIRETYPE_END_GROUP) return number == group;
      const FieldDescriptor* field = type == nullptr ? nullptr : type->FindFieldByNumber(number);
      const Descriptor* inner = field == nullptr ? nullptr : field->message_type();
      if (field == nullptr || inner != nullptr || field->is_repeated()) ++elements_;
      if (elements_ > elements_max_ || !pass(wire, number, inner, depth)) return false;
    }
    return group == 0 && input_.ConsumedEntireMessage();
  }

  bool is_too_large() const { return elements_ > elements_max_; }
  bool is_too_deep() const { return too_deep_; }

 private:
  /// Skips the value of the field whose tag was just read, and counts the elements in it.
  bool pass(WireFormatLite::WireType wire, int number, const Descriptor* inner, int depth) {
    uint64_t varint = 0;
    uint32_t length = 0;
    switch (wire) {
      case WireFormatLite::WIRETYPE_VARINT:
        return input_.ReadVarint64(&varint);
      case WireFormatLite::WIRETYPE_FIXED64:
        return input_.Skip(8);
      case WireFormatLite::WIRETYPE_FIXED32:
        return input_.Skip(4);
      case WireFormatLite::WIRETYPE_START_GROUP:
        return count(nullptr, depth + 1, number);
      case WireFormatLite::WIRETYPE_LENGTH_DELIMITED: {
        if (!input_.ReadVarint32(&length) || length > std::numeric_limits<int>::max()) return false;
        if (inner == nullptr) return input_.Skip(static_cast<int>(length));
        const auto limit = input_.PushLimit(static_cast<int>(length));
        const bool whole = count(inner, depth + 1, 0);
        input_.PopLimit(limit);
        return whole;
      }
      default:
        return false;
    }
  }

  google::protobuf::io::CodedInputStream input_;
  const size_t elements_max_;
  size_t elements_ = 0;
  bool too_deep_ = false;
};

}  // namespace

Status check_element_count(google::protobuf::io::ZeroCopyInputStream& bytes, const Descriptor& type,
                           size_t elements_max) {
  Counter counter(bytes, elements_max);
  (void)counter.count(&type, 0, 0);
  if (counter.is_too_large()) {
    return make_error(ErrorCode::kInvalidArgument, "REQUEST_TOO_LARGE",
                      "the request has more than " + std::to_string(elements_max) +
                          " elements (messages, entries of lists and maps), expected at most that "
                          "many");
  }
  if (counter.is_too_deep()) {
    return make_error(ErrorCode::kInvalidArgument, "REQUEST_MALFORMED",
                      "the request has messages nested deeper than " + std::to_string(kDepthMax));
  }
  return {};
}

}  // namespace trainyard::server
