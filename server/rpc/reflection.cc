#include "server/rpc/reflection.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <grpcpp/grpcpp.h>

#include <set>
#include <utility>

#include "grpc/reflection/v1/reflection.grpc.pb.h"

namespace trainyard::server {
namespace {

namespace wire = grpc::reflection::v1;
namespace pb = google::protobuf;

using Services = std::vector<std::string>;

/// Appends `file` to the response, after all its imports that are not in `seen`.
void add_file(const pb::FileDescriptor& file, std::set<const pb::FileDescriptor*>& seen,
              wire::FileDescriptorResponse& response) {
  if (!seen.insert(&file).second) return;
  for (int i = 0; i < file.dependency_count(); ++i) add_file(*file.dependency(i), seen, response);
  pb::FileDescriptorProto proto;
  file.CopyTo(&proto);
  response.add_file_descriptor_proto(proto.SerializeAsString());
}

/// Fills in the response with the file and its imports, or with an error for the client if `file`
/// is nullptr.
void answer_file(const pb::FileDescriptor* file, const std::string& sought,
                 wire::ServerReflectionResponse& response) {
  if (file == nullptr) {
    response.mutable_error_response()->set_error_code(grpc::StatusCode::NOT_FOUND);
    response.mutable_error_response()->set_error_message("the server has no " + sought);
    return;
  }
  std::set<const pb::FileDescriptor*> seen;
  add_file(*file, seen, *response.mutable_file_descriptor_response());
}

wire::ServerReflectionResponse answer(const wire::ServerReflectionRequest& request,
                                      const Services& services) {
  using Kind = wire::ServerReflectionRequest;
  const pb::DescriptorPool& pool = *pb::DescriptorPool::generated_pool();
  wire::ServerReflectionResponse response;
  response.set_valid_host(request.host());
  *response.mutable_original_request() = request;
  switch (request.message_request_case()) {
    case Kind::kFileByFilename:
      answer_file(pool.FindFileByName(request.file_by_filename()),
                  "file " + request.file_by_filename(), response);
      break;
    case Kind::kFileContainingSymbol:
      answer_file(pool.FindFileContainingSymbol(request.file_containing_symbol()),
                  "symbol " + request.file_containing_symbol(), response);
      break;
    case Kind::kFileContainingExtension: {
      const wire::ExtensionRequest& sought = request.file_containing_extension();
      const pb::Descriptor* type = pool.FindMessageTypeByName(sought.containing_type());
      const pb::FieldDescriptor* extension =
          type == nullptr ? nullptr : pool.FindExtensionByNumber(type, sought.extension_number());
      answer_file(extension == nullptr ? nullptr : extension->file(),
                  "extension " + std::to_string(sought.extension_number()) + " of " +
                      sought.containing_type(),
                  response);
      break;
    }
    case Kind::kAllExtensionNumbersOfType: {
      const std::string& name = request.all_extension_numbers_of_type();
      const pb::Descriptor* type = pool.FindMessageTypeByName(name);
      if (type == nullptr) {
        answer_file(nullptr, "message " + name, response);
        break;
      }
      std::vector<const pb::FieldDescriptor*> extensions;
      pool.FindAllExtensions(type, &extensions);
      wire::ExtensionNumberResponse& numbers = *response.mutable_all_extension_numbers_response();
      numbers.set_base_type_name(name);
      for (const pb::FieldDescriptor* field : extensions) {
        numbers.add_extension_number(field->number());
      }
      break;
    }
    case Kind::kListServices:
      for (const std::string& name : services) {
        response.mutable_list_services_response()->add_service()->set_name(name);
      }
      break;
    case Kind::MESSAGE_REQUEST_NOT_SET:
      response.mutable_error_response()->set_error_code(grpc::StatusCode::INVALID_ARGUMENT);
      response.mutable_error_response()->set_error_message(
          "message_request: set one of file_by_filename, file_containing_symbol, "
          "file_containing_extension, all_extension_numbers_of_type and list_services");
      break;
  }
  return response;
}

/// Sends one response to each request, in order.
class ReflectionStream final : public grpc::ServerBidiReactor<wire::ServerReflectionRequest,
                                                              wire::ServerReflectionResponse> {
 public:
  explicit ReflectionStream(const Services& services) : services_(services) {
    StartRead(&request_);
  }
  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    response_ = answer(request_, services_);
    StartWrite(&response_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::CANCELLED);
    StartRead(&request_);
  }
  void OnDone() override { delete this; }

 private:
  ~ReflectionStream() override = default;

  const Services& services_;
  wire::ServerReflectionRequest request_;
  wire::ServerReflectionResponse response_;
};

class ReflectionService final : public wire::ServerReflection::CallbackService {
 public:
  explicit ReflectionService(Services services) : services_(std::move(services)) {
    services_.insert(services_.end(), {"grpc.reflection.v1.ServerReflection",
                                       "grpc.reflection.v1alpha.ServerReflection"});
  }
  grpc::ServerBidiReactor<wire::ServerReflectionRequest, wire::ServerReflectionResponse>*
  ServerReflectionInfo(grpc::CallbackServerContext* /*context*/) override {
    return new ReflectionStream(services_);  // deletes itself in OnDone
  }

 private:
  Services services_;
};

}  // namespace

std::unique_ptr<grpc::Service> make_reflection_service(std::vector<std::string> services) {
  return std::make_unique<ReflectionService>(std::move(services));
}

}  // namespace trainyard::server
