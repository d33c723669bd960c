"""Texts of .proto as the kernel compiles them, beside what protoc made of the same."""

from __future__ import annotations

import base64
import importlib
import json
import pkgutil
import zlib
from typing import Any

import google.type
import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from pyspark.sql import SparkSession

pytestmark = pytest.mark.stream

PART = """syntax = "proto2"; package parts.deep;
message Part { required int32 a = 1; optional Kind kind = 3 [default = BIG]; enum Kind { SMALL = -1; BIG = 5; } }"""
TEXTS = {
    "proto2": r"""package two; import "part.proto"; import weak "google/protobuf/descriptor.proto";
// optional group Not = 1 { }
extend google.protobuf.FieldOptions { optional string tag = 50000; optional Opt opt = 50002; }
message Opt { optional string a = 1; repeated string b = 2; map<string, string> m = 4; }
enum E { ONE = 1 [(label) = "one"]; TWO = 2; NEG = -1; }
extend google.protobuf.EnumValueOptions { optional string label = 50000; }
message Row {
  required int32 id = 1 [(tag) = "x", (opt).a = "q"]; optional bytes raw = 3 [default = "\000\xff"];
  optional string name = 2 [default = "group X = 1 { it's \"q\" \n \x41 \101"]; optional float n = 10 [default = nan];
  optional E e = 6 [default = TWO]; optional uint64 u = 8 [default = 18446744073709551615];
  repeated int32 p = 11 [packed = true]; repeated int32 q = 12; repeated E es = 13 [packed = true];
  oneof o { int32 x = 14; string y = 15; group Chosen = 24 { optional bool b = 1; } sint32 z = 0x19; }
  extensions 100 to 199, 500 to max; extend Row { optional int32 inner_ext = 150; }
  optional parts.deep.Part part = 16 [lazy = true]; map<string, parts.deep.Part> parts = 17;
  optional Opt agg = 19 [(opt) = { a: "x" b: ["y", "z"] m: [{key: "k", value: "v"}] }];
  optional group Inner = 20 {
    optional int32 a = 1 [default = 5]; message More { optional int32 z = 1; } optional More more = 2;
    repeated group Deep = 3 { required string x = 1; enum E { Q = 0; } optional E e = 3; }
  }
  /* group */ repeated group Many = 21 [deprecated = true] { optional Inner self = 1; }
  message After { optional int32 q = 1; } optional After after = 22; optional int32 group = 23;
}
extend Row { optional string outer_ext = 120; optional group Ext = 121 { optional int32 e = 1; } }
""",
    "proto3": """syntax = "proto3"; package three.x; import "part.proto"; import public "google/protobuf/any.proto";
import "google/protobuf/struct.proto"; import "google/protobuf/wrappers.proto";
option java_package = "a.b"; option go_package = "x;y";
enum Sort { option allow_alias = true; NONE = 0; NULL = 0; MINUS = -5; BIG = 2147483647;
            reserved 7, 9 to 11; reserved "OLD"; }
message Row {
  reserved 2, 15, 9 to 11, 1000 to max; reserved "foo", "bar";
  optional int32 maybe = 1; Sort sort = 3; repeated Sort sorts = 4 [packed = false]; repeated int32 nums = 5;
  repeated int64 loose = 6 [packed=false, deprecated = true]; uint64 u = 0x2A; Leaf.Deep deep = 41;
  map<string, Leaf> leaves = 7; map<int32, Sort> kinds = 8; map<sfixed64, google.protobuf.Value> values = 12;
  oneof either { string a = 13; Leaf b = 14; google.protobuf.Int64Value c = 16; Sort d = 17 [json_name = "dee"]; }
  optional Leaf.Sub sub = 18; .three.x.Leaf.Sub abs = 19; parts.deep.Part part = 20; google.protobuf.Any any = 21;
  string message = 29; bytes enum = 30; double reserved = 31; bool optional = 32; float repeated = 33; int32 oneof = 34;
  string camelCase = 35; string __under = 36; string a1_b2 = 37 [json_name = "@x"];
  message Leaf2 { Row up = 1; message Leaf { int32 shadow = 1; } Leaf leaf = 2; }
  Leaf2 l2 = 38; optional string o2 = 39; oneof second { int32 z1 = 40; }
}
message Leaf { string n = 1; message Sub { optional bytes raw = 1; enum K { A = 0; } K k = 2; } Sub.K k = 2;
               message Deep { Sub sub = 1; } repeated Leaf next = 3; ; }
service S { rpc Do (Row) returns (stream Leaf) { option deprecated = true; } }
;
""",
}
PROTOC = {
    "proto2": """
c-n<j&2HO95YBQ%g&I3Hy|&X0kpL{4AJ+#)QsgLM(Sy~hZ2~xM7e$gofP#)_Rft4N6lF{9rN|)<&_geMjyywqEcz_Hw==tv<HQES6KCd|Z|CRR1s
KG=G#utxkqKTLXC4gWyf6;W?`B!IpWM~f!Q}96CmFxYd&45j4I(%KzCSF)GO$=OpKVnXi^)2Wme0vL5I2AgWC^XM`f7+LgqRTSwbLS>DK_vLP&S5
efxk*-a~k>;8(<&B{Yipk<TFNOJz&8f4sewni|b(ZI+$W@*{$W*ZzY@l_EvIWBZYq90ng)O$uWC5a$Z!c)fe}gO+`*og;E+1=G4*kZk|ns{&W9Jz
vlnq_li4XKNtl*_`CkD(nzreER}$8E8=OKDwc|Cz!F(T*Gj#tduvDh$7lPBB_aSekq(AR(MIh-qjA64XjGf`n$?FpJGJ|@9mOWtF&oMy9F5(wT&C
ENMmLhn<WX#d^;^kUUP1GeUjxxAR)9_A3i8|ET~cgH_Drr)Gi1-i=TLt6b2d&=DbWe@+2hQ@ue2Lca{#5D$ZLpNqtp|z1tk)JbkVg`cSAD9VJAt3
;rIC4vbLDg2t35rLAj>)yMB5G;l^gi1|e#|<8D{3Yffh&gw`hR3kN$DSTZ{a%D`R;cBBX^Zi3xQ(<GN0x`UNd_DAGZCMa$}X%MF~xrrq}{mLn551
lPbVyP4+viPt-va7m+cVxTdRVGM^(@Kz^&}5Y{ysJ<)Lo?DQg*qs0?=ir;MlaCs?X&v5V3KDP?fuEX)_sZ9#bvT1wnO*n4tAL33zqfw#}MveNNE5
8i5mq^qxcZ`HHMT1cpFfnG-~I>9EE%L+E5}4d8hhLRY+K$k;b{!_~r$SVH?#R0I;^Of&JiK^0twjCLTa(ob(Sh|I)eb>6o_(ww}Kc{=AaWw(WG>z
u0!g`Io!D;%C)wLq)Iqr({|PXTc?ZHz|&ewWmc3?|v4n1IK^jOctEUc9lxR9qm79yUe?cj|I=tL|g{Cv93j-C+%<D{}vyMP_jkb6*ofj42FwmF#M
*M^gF2DUY3sK-*33tIAWtOfM@s~ekA1|opR<HD9VZ+g58e~lD_!#TzWg544#r!K0MWAM7N-lO^S2lnQDxqLpYJ>Ch+$GGkvp+jQ~aA=j?wnZ-nF
""",
    "proto3": """
c-n<kUsKyg5claM|5+O%4w78dgb*i9C~cI)?Q}ZrOXHFW1WM?6=tEyTC;JQxw&c+tz<ugtzG7$k0s0;K(C(dtV`DPagS@-Hy<OezZ`S}Lc^dlTI7
%Z{Nl#*>{7VnUGEQ@&ckeigj)&@n(SmI7LWYw9x_=!?(m3l~9bCVTUc_=dR&kQ!%|8LCh%VSYa7J<xC{8xWrn6&-T>U@@djxh8#VMzVEVq{Y;`{s
#8ij$_GjQ~8!tD*Z;M2C;lE`t!zz(xf!X5N;gprvC&M=A+#mi`<ZQCtzB61UJ0Ll0kCbk91*i*3kN{#s!XsEZ?G|Rq{1AiM4VQ}^m%0ng3Rl+M6v
fkoTPrR!3M(9nL#uHKavFG5Nore8{SIvRDa|iY`lKbagI>EUdW|*LHLxNuoR3ym#*fJ2wm+-r5J0(FRdjKTh%jO<SbNA42z`g|1<F0`}^Ya$^S1t
5+!}Qy4OcL$fV-JD!`N|F5L6~Ae*e1{<3pg|JR_4pr$$}j!G_HI77^n;qzWNDIp;7h(Y)wtRX1rWqD~Ycw?;lFd32ne;Q6wq9ZJgE?F7Y~?2<^Z)
R7NUE<gwxpbbZ8?s>z~|A$%Rp4Pj&?OEp%BiqBP_KSVnbQ(a@xI6aL*IpiCNRmD`#&yAH#@!TWCEHTyD8aPp?q5*Ge?u%Su_o3F4BQ^X<A~heIFZ
*a<cc9YkW?^5&{E5MwBdxF%aOA6Q(BhvPtM%h0Yl1aw@u$}~TQG6Z5{R-@u%Z@!X82(Xlyx&)uzr8VH_bp2fwH#)^%?e}13gm{GqN?IMeLtr2*<4
(s3mgjd+R&my#@G4>)Alg4S^P>ekRZ_P@m!ZY$P|2^ws<)-C1CQIX)XQ2FFweTVQ2l6RX~8%vMgI9cRSG=^Yet?=Dt0zqE1k*1^^q_N|<p$bNKDT
(;2KRVb^|^hCv4N>ncj`&#OnE!ZxD-NgxMJ3zZp>z!S-T#D~ou8Z%Q+jv*2{#|kZz{e7F5JiFpGH(7wiln&3!lFwg#C=N6in6XQOqjnX$eCWbp}N
#7mo9eEKwbwZy0hCrW0_y3p~oGSd}se(jwS%vV-AqlZpqvaPkLBVy+-vK&<lfnat$E5bqKa51FM34@c!V9TQbto{ys_!oS%0Ojymo?{}vBnb)fCt
x2{$yp5>CJU9Gs4rY>N8i@x9AZaoLm!DVG_M{KU$-h2g`^n*oSk~aQzNk90FUj8sSBth8_>g)di<9g@g
""",
}
"""The descriptors that protoc 36 made of them, compressed."""


def lean(m: DescriptorProto) -> None:
    """Without what says nothing about bytes, and with nested messages in one order."""
    del m.extension[:]
    for f in m.field:
        f.ClearField("json_name")
        f.ClearField("default_value")
        packed, said = f.options.packed, f.options.HasField("packed")
        f.ClearField("options")
        if said:
            f.options.packed = packed
    for o in m.oneof_decl:
        o.ClearField("options")
    for inner in sorted(m.nested_type, key=lambda n: n.name):
        lean(inner)
    nested = sorted(m.nested_type, key=lambda n: n.name)
    del m.nested_type[:]
    m.nested_type.extend(nested)


def bare(file: FileDescriptorProto) -> dict[str, Any]:
    for m in file.message_type:
        lean(m)
    for e in file.enum_type:
        del e.reserved_range[:], e.reserved_name[:]
        for v in e.value:
            v.ClearField("options")
    return {
        "imports": sorted(file.dependency),
        "syntax": file.syntax or "proto2",
        # The message that the group of an extension is has no bytes of its own.
        "messages": [str(m) for m in file.message_type if m.name != "Ext"],
        "enums": [str(e) for e in file.enum_type],
    }


def compiled(spark: SparkSession, text: str) -> list[FileDescriptorProto]:
    jvm: Any = spark._jvm
    kernel = jvm.org.apache.spark.sql.pgstream
    said = {"text": text, "refers": {"part.proto": PART}}
    return list(FileDescriptorSet.FromString(base64.b64decode(kernel.ProtobufText.compiled(json.dumps(said)))).file)


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_is_what_protoc_says(spark: SparkSession, name: str) -> None:
    wanted = FileDescriptorProto.FromString(zlib.decompress(base64.b85decode(PROTOC[name].replace("\n", ""))))
    ours = compiled(spark, TEXTS[name])[-1]
    assert bare(ours) == bare(wanted)


def test_types_of_google_come_with_every_registry(spark: SparkSession) -> None:
    names = [m.name.removesuffix("_pb2") for m in pkgutil.iter_modules(google.type.__path__) if m.name.endswith("_pb2")]
    text = 'syntax = "proto3";' + "".join(f'import "google/type/{n}.proto";' for n in names)
    ours = {f.name: bare(f) for f in compiled(spark, f"{text} message M {{ google.type.Money price = 1; }}")}
    for name in names:
        file = FileDescriptorProto()
        importlib.import_module(f"google.type.{name}_pb2").DESCRIPTOR.CopyToProto(file)
        assert ours[file.name] == bare(file), name


def test_what_is_imported_for_its_options_may_be_missing(spark: SparkSession) -> None:
    text = """syntax = "proto3"; import "validate/validate.proto"; option (gen.info) = { title: "t" };
      message R { option (validate.off) = true; string a = 1 [(validate.rules).string = { min_len: 1, in: ["x"] }];
                  oneof k { option (validate.required) = true; int32 b = 2; %s } }"""
    assert [f.name for f in compiled(spark, text % "")[-1].message_type[0].field] == ["a", "b"]
    with pytest.raises(Exception, match=r"validate/validate\.proto, which is imported, is not among the references"):
        compiled(spark, text % "validate.Rule c = 3;")
