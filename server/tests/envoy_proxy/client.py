"""Asks the service by grpcio and by grpclib, with the messages of envoy-data-plane."""

import asyncio
import sys

import grpc
from envoy_data_plane.envoy.extensions.common.ratelimit.v3 import (
    RateLimitDescriptor,
    RateLimitDescriptorEntry,
)
from envoy_data_plane.envoy.service.ratelimit.v3 import (
    RateLimitRequest,
    RateLimitResponse,
    RateLimitResponseCode,
)
from grpclib.client import Channel
from grpclib.const import Cardinality

METHOD = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
port = int(sys.argv[1])


def request(user, domain="shop", **fields):
    entries = [RateLimitDescriptorEntry(key="user", value=user)]
    descriptors = [RateLimitDescriptor(entries=entries, **fields)]
    return RateLimitRequest(domain=domain, descriptors=descriptors)


def judge(ask):
    codes = []
    for remaining in [2, 1, 0, 0]:
        response = ask(request("alice-" + ask.__name__))
        status = response.statuses[0]
        codes.append(response.overall_code)
        assert status.limit_remaining == remaining, status
        assert status.current_limit.requests_per_unit == 3, status
        assert not response.response_headers_to_add, response
    ok, over = RateLimitResponseCode.OK, RateLimitResponseCode.OVER_LIMIT
    assert codes == [ok, ok, ok, over], codes
    look = ask(request("bob-" + ask.__name__, hits_addend=0))
    assert look.statuses[0].limit_remaining == 3, look
    assert ask(request("bob", domain="unknown")).statuses[0].current_limit is None


def by_grpcio():
    channel = grpc.insecure_channel(f"127.0.0.1:{port}")
    call = channel.unary_unary(
        METHOD, request_serializer=bytes, response_deserializer=RateLimitResponse.parse
    )

    def grpcio(message):
        return call(message, timeout=10)

    judge(grpcio)
    try:
        grpcio(RateLimitRequest(domain="shop"))
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT, error
    else:
        raise AssertionError("a request without descriptors is answered")
    channel.close()


async def by_grpclib():
    channel = Channel("127.0.0.1", port)

    async def call(message):
        async with channel.request(
            METHOD, Cardinality.UNARY_UNARY, RateLimitRequest, RateLimitResponse, timeout=10
        ) as stream:
            await stream.send_message(message, end=True)
            return await stream.recv_message()

    loop = asyncio.get_running_loop()

    def grpclib(message):
        return asyncio.run_coroutine_threadsafe(call(message), loop).result(20)

    await asyncio.to_thread(judge, grpclib)
    channel.close()


by_grpcio()
asyncio.run(by_grpclib())
print("ok")
