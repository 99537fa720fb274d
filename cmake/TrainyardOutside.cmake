# Third-party libraries, which programs link in two ways. outside::NAME is the distribution's shared library. In targets of
# trainyard_alone() it is the static archive, so that the program is a single file that needs only glibc
# (docs/decisions/programs-and-packages.md).
find_package(JPEG REQUIRED)
find_package(LibArchive REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(PNG REQUIRED)
find_package(ZLIB REQUIRED)
find_path(UTF8PROC_INCLUDE_DIR utf8proc.h REQUIRED)
find_library(UTF8PROC_LIBRARY utf8proc REQUIRED)
add_library(utf8proc UNKNOWN IMPORTED GLOBAL)
set_target_properties(utf8proc PROPERTIES IMPORTED_LOCATION ${UTF8PROC_LIBRARY}
  INTERFACE_INCLUDE_DIRECTORIES ${UTF8PROC_INCLUDE_DIR})
set(outside crypto=OpenSSL::Crypto ssl=OpenSSL::SSL jpeg=JPEG::JPEG archive=LibArchive::LibArchive png=PNG::PNG z=ZLIB::ZLIB
            utf8proc=utf8proc)
if(TRAINYARD_SERVICE)
  find_package(Protobuf REQUIRED)  # must come before gRPC
  find_package(gRPC CONFIG REQUIRED)
  find_package(yaml-cpp REQUIRED)
  find_path(SECCOMP_INCLUDE_DIR seccomp.h REQUIRED)
  find_library(SECCOMP_LIBRARY seccomp REQUIRED)
  add_library(seccomp UNKNOWN IMPORTED GLOBAL)
  set_target_properties(seccomp PROPERTIES IMPORTED_LOCATION ${SECCOMP_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${SECCOMP_INCLUDE_DIR})
  list(APPEND outside grpc=gRPC::grpc++ protobuf=protobuf::libprotobuf yaml=yaml-cpp seccomp=seccomp)
endif()
foreach(pair IN LISTS outside)
  string(REGEX MATCH "^([^=]+)=(.+)$" pair ${pair})
  add_library(outside::${CMAKE_MATCH_1} INTERFACE IMPORTED GLOBAL)
  target_link_libraries(outside::${CMAKE_MATCH_1} INTERFACE
    $<IF:$<BOOL:$<TARGET_PROPERTY:TRAINYARD_ALONE>>,outside::archives,${CMAKE_MATCH_2}>)
endforeach()

# Finds the static archives. They refer to each other, so the linker rescans them until no new symbol is resolved. The other
# dependencies of libarchive (acl, lz4 and libxml2) are left out, since they are for formats that are not read here.
function(trainyard_find_archives)
  set(archives)
  foreach(name IN ITEMS grpc++ grpc gpr address_sorting upb protobuf re2 cares ssl crypto yaml-cpp
                        archive bz2 lzma nettle zstd jpeg png16 utf8proc z)
    find_library(TRAINYARD_ARCHIVE_${name} lib${name}.a)
    mark_as_advanced(TRAINYARD_ARCHIVE_${name})
    if(NOT TRAINYARD_ARCHIVE_${name})
      message(FATAL_ERROR "lib${name}.a was not found; on Debian, scripts/setup installs it")
    endif()
    list(APPEND archives ${TRAINYARD_ARCHIVE_${name}})
  endforeach()
  cmake_path(GET TRAINYARD_ARCHIVE_gpr PARENT_PATH folder)
  file(GLOB abseil ${folder}/libabsl_*.a)
  list(APPEND archives ${abseil})
  list(JOIN archives "\n" listed)
  file(WRITE ${PROJECT_BINARY_DIR}/alone_archives.txt "${listed}\n")  # scripts/package collects their licenses
  list(JOIN archives "," archives)
  add_library(outside::archives INTERFACE IMPORTED GLOBAL)
  target_link_libraries(outside::archives INTERFACE "$<LINK_GROUP:RESCAN,${archives}>")
endfunction()

# Links the program as a single file, except with a sanitizer, whose runtime needs the shared C++ library.
function(trainyard_alone target)
  if(TRAINYARD_SANITIZE)
    return()
  endif()
  if(NOT TARGET outside::archives)
    trainyard_find_archives()
  endif()
  set_target_properties(${target} PROPERTIES TRAINYARD_ALONE ON)
  target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc LINKER:--gc-sections)
endfunction()
