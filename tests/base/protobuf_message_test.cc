// Checks the wire format against the bytes in its documentation, and against itself: borrowed data
// must be serialized as if it had been copied.
#include "src/base/protobuf_message.h"

#include <gtest/gtest.h>

namespace trainyard {
namespace {

std::string bytes_of(const ProtobufMessage& message) {
  std::string all;
  for (const std::span<const std::byte> part : message.parts()) {
    all.append(reinterpret_cast<const char*>(part.data()), part.size());
  }
  EXPECT_EQ(static_cast<int64_t>(all.size()), message.size_bytes());
  return all;
}

std::string hex(const ProtobufMessage& message) {
  std::string text;
  for (const char c : bytes_of(message)) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    const auto byte = static_cast<unsigned char>(c);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

TEST(ProtobufMessage, NumbersAreEncodedAsDocumented) {
  ProtobufMessage m;
  m.add_int(1, 150);
  EXPECT_EQ(hex(m), "089601");
  m = {};
  m.add_int(1, 0);
  m.add_int(1, 127);
  m.add_int(1, 128);
  EXPECT_EQ(hex(m), "0800087f088001");
  m = {};
  m.add_int(1, -2);
  EXPECT_EQ(hex(m), "08feffffffffffffffff01");
  m = {};
  m.add_int(20, 7);  // the tag of a field above 15 has two bytes
  EXPECT_EQ(hex(m), "a00107");
  m = {};
  m.add_float(2, 1.0f);
  m.add_float(2, -0.15625f);
  EXPECT_EQ(hex(m), "150000803f15000020be");
}

TEST(ProtobufMessage, TextAndMessagesAreEncodedAsDocumented) {
  ProtobufMessage text;
  text.add_text(2, "testing");
  EXPECT_EQ(hex(text), "120774657374696e67");
  ProtobufMessage inner;
  inner.add_int(1, 150);
  ProtobufMessage outer;
  outer.add_message(3, std::move(inner));
  EXPECT_EQ(hex(outer), "1a03089601");
  ProtobufMessage empty;
  empty.add_message(3, {});
  empty.add_text(4, "");
  EXPECT_EQ(hex(empty), "1a002200");
}

TEST(ProtobufMessage, BorrowedBytesReadAsCopies) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{127}, size_t{128}, size_t{100000}}) {
    const std::string weights(size, 'w');
    const auto build = [&](bool borrow) {
      ProtobufMessage tensor;
      tensor.add_int(1, 3);
      if (borrow) {
        tensor.add_borrowed(9, std::as_bytes(std::span(weights)));
      } else {
        tensor.add_text(9, weights);
      }
      ProtobufMessage graph;
      graph.add_message(5, tensor);
      graph.add_message(5, tensor);
      graph.add_text(10, "behind");
      ProtobufMessage model;
      model.add_message(7, std::move(graph));
      model.add_int(1, 8);
      return bytes_of(model);
    };
    EXPECT_EQ(build(true), build(false)) << size;
  }
}

}  // namespace
}  // namespace trainyard
