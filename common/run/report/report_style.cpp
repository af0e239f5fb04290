#include "common/run/report/report_style.h"

namespace lab {
namespace {

constexpr std::string_view kStyle = R"css(
:root{color-scheme:light dark;
 --page:#f7f7f4;--card:#fff;--ink:#1d2733;--soft:#5a6673;--line:#dfe3e6;--lane:#edf0f2;
 --forward:#2f6cc0;--forward-odd:#4a86d8;--backward:#1f8055;--backward-odd:#35996b;
 --loss:#b7791f;--optimizer:#8e44ad;--waiting:#b6bfc9;--communication:#d2601a;
 --curve:#1f5fa8;--curve-faint:#a9c4e6;--dots:#c8521d;--mine:#1f8055}
@media screen and (prefers-color-scheme:dark){:root{
 --page:#12161b;--card:#1a2027;--ink:#e3e8ed;--soft:#9ba7b3;--line:#303943;--lane:#262e37;
 --forward:#3d7bd0;--forward-odd:#5590e0;--backward:#27905f;--backward-odd:#3ba572;
 --loss:#c98a2b;--optimizer:#a35cc2;--waiting:#56616d;--communication:#e0733a;
 --curve:#6ea8f0;--curve-faint:#365377;--dots:#f08a55;--mine:#4fbf8b}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);
 font:16px/1.55 system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif}
main{max-width:1240px;margin:0 auto;padding:40px 28px 64px}
h1{font-size:30px;line-height:1.2;margin:0;overflow-wrap:anywhere}
h2{font-size:20px;margin:0 0 4px}
h3{font-size:15px;margin:0 0 6px}
p{margin:0 0 10px}
.subtitle{font-size:17px;color:var(--soft);margin:6px 0 0}
.whose{margin:20px 0 0;padding:2px 0 2px 14px;border-left:4px solid var(--line)}
.whose.own{border-color:var(--mine)}
.note,.about{color:var(--soft);font-size:14px;max-width:78ch}
.notes{margin:18px 0 0;padding:0;list-style:none}
.notes li{margin:4px 0;padding-left:14px;border-left:4px solid var(--loss);font-size:15px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;
 margin:28px 0 0;padding:0}
.tile{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:12px 16px}
.tile dt{color:var(--soft);font-size:13px}
.tile dd{margin:0;font-size:24px;line-height:1.3;font-variant-numeric:tabular-nums}
.tile dd small{display:block;font-size:13px;color:var(--soft)}
section{background:var(--card);border:1px solid var(--line);border-radius:12px;
 padding:24px;margin:24px 0 0}
figure{margin:14px 0 0}
section>figure+figure,section>figure+h3,section>div+h3,section>p+h3{margin-top:26px}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:0 40px}
figcaption{font-size:14px;display:flex;flex-wrap:wrap;gap:2px 12px;align-items:baseline}
.unit,.x-name{color:var(--soft);font-size:13px}
.keys{display:flex;flex-wrap:wrap;gap:2px 16px;font-size:13px}
.chart .keys{margin-left:auto}
.key{white-space:nowrap}
.key i{display:inline-block;margin-right:6px}
.key .box{width:14px;height:12px;border-radius:2px;vertical-align:-1px}
.key .line{width:22px;vertical-align:4px;border-top:2.5px solid}
.key .faint-line{border-color:var(--curve-faint)}
.key .strong-line{border-color:var(--curve)}
.key .dotted-line{border-top:2px dashed var(--dots)}
.plot{margin:12px 10px 0 54px;height:190px}
.plot.tall{height:330px}
.plot svg{display:block;width:100%;height:100%;overflow:visible}
.x-name{text-align:center;margin-top:22px}
svg text{font-size:12px;fill:var(--soft);font-variant-numeric:tabular-nums}
svg .end{text-anchor:end}svg .middle{text-anchor:middle}svg .start{text-anchor:start}
.rule{stroke:var(--line)}.axis{stroke:var(--soft)}
polyline,.dot{fill:none;vector-effect:non-scaling-stroke;stroke-linejoin:round}
polyline.faint-line{stroke:var(--curve-faint);stroke-width:1}
polyline.strong-line{stroke:var(--curve);stroke-width:2.2}
polyline.dotted-line{stroke:var(--dots);stroke-width:1.5;stroke-dasharray:5 4}
.dot{stroke:var(--dots);stroke-width:7.5;stroke-linecap:round}.dot.small{stroke-width:3}
.scroll{overflow-x:auto}
.scroll+.about,.keys+.about{margin-top:12px}
.grid{display:grid;grid-template-columns:max-content 1fr max-content;gap:12px;
 align-items:start;padding-bottom:4px}
.grid svg{display:block;width:100%;overflow:visible}
.grid .name{position:sticky;left:0;background:var(--card);font-size:14px;padding-right:6px;
 line-height:26px;white-space:nowrap;z-index:1}
.idle,.head{text-align:right;font-size:14px;line-height:26px;font-variant-numeric:tabular-nums;
 min-width:42px}
.head{color:var(--soft);font-size:13px;line-height:1.2}
@media screen and (min-width:561px){.idle,.head{position:sticky;right:0;background:var(--card)}}
.idle small{display:block;font-size:12px;line-height:16px;color:var(--soft)}
.theory{opacity:.72}
i.lane{box-shadow:inset 0 0 0 1px var(--line)}
.grid .number{fill:#fff;text-anchor:middle;pointer-events:none}
.lane{fill:var(--lane);background:var(--lane)}
.forward{fill:var(--forward);background:var(--forward)}.forward.odd{fill:var(--forward-odd)}
.backward{fill:var(--backward);background:var(--backward)}.backward.odd{fill:var(--backward-odd)}
.loss{fill:var(--loss);background:var(--loss)}
.optimizer,.add{fill:var(--optimizer);background:var(--optimizer)}
.waiting{fill:var(--waiting);background:var(--waiting)}
.communication{fill:var(--communication);background:var(--communication)}
.compute{background:var(--forward)}
table{border-collapse:collapse;font-size:14px;font-variant-numeric:tabular-nums}
th{font-weight:400;color:var(--soft);font-size:13px}
th,td{padding:5px 10px;text-align:right;white-space:nowrap}
th:first-child{text-align:left;padding-left:0}
tbody th{color:var(--ink);font-size:14px;position:sticky;left:0;background:var(--card)}
.bars{width:100%}
.bars .wide{width:60%;min-width:150px;padding-right:0}
.bar{display:flex;height:18px;border-radius:3px;overflow:hidden;background:var(--lane)}
.bar i{display:block;height:100%}
.idles{max-width:720px}
.links{display:flex;flex-wrap:wrap;gap:14px 44px;align-items:flex-start;margin-top:14px}
.links .scroll{max-width:100%}.links>div:last-child{flex:1 1 300px}
.matrix td{min-width:64px;border:1px solid var(--line);line-height:1.3}
.matrix td.self{background:var(--lane)}
.matrix small{display:block;color:var(--soft);font-size:12px}
.matrix tbody th{padding-right:14px}
.matrix tbody th span{color:var(--soft)}
.swatch{display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:6px}
.stories{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,360px),1fr));
 gap:22px 36px;margin-top:16px}
.story h3{color:var(--soft);font-weight:600;font-size:13px}
.story p{font:16px/1.6 Georgia,'Iowan Old Style','Times New Roman',serif;white-space:pre-wrap;
 overflow-wrap:anywhere}
.facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,340px),1fr));
 gap:24px 40px;margin-top:14px}
.facts dl{display:grid;grid-template-columns:minmax(0,2fr) minmax(0,3fr);gap:3px 14px;margin:0;
 font-size:14px}
.facts dt{color:var(--soft)}
.facts dd{margin:0;overflow-wrap:anywhere}
@media(max-width:560px){main{padding:24px 12px 40px}section{padding:18px 14px}
 h1{font-size:25px}.tiles{grid-template-columns:1fr 1fr}.tile{padding:10px 12px}
 .tile:last-child:nth-child(odd){grid-column:1/-1}
 .tile dd{font-size:20px}.plot{margin-left:42px;margin-right:4px}.plot.tall{height:250px}
 .chart .keys{margin-left:0}th,td{padding:5px 6px}
 .bars .wide{width:40%;min-width:110px}
 .grid .name{max-width:84px;white-space:normal;font-size:12px;line-height:15px}
 .matrix tbody th{min-width:92px;max-width:92px;white-space:normal;font-size:12px;line-height:15px}
 .shares,.shares tbody,.shares thead{display:block}
 .shares tr{display:grid;grid-template-columns:repeat(4,auto);justify-content:space-between;
  margin-bottom:8px}
 .shares th,.shares td{padding:2px 0}.shares thead th{font-size:12px}
 .shares thead .blank{display:none}
 .shares tbody th,.shares .wide{grid-column:1/-1;width:auto}
 .shares tbody td{font-size:13px}.swatch{margin-right:4px}}
@media print{:root{--page:#fff}body{font-size:13px}main{max-width:none;padding:0}
 *{-webkit-print-color-adjust:exact;print-color-adjust:exact}
 section{border:0;padding:12px 0;margin:10px 0 0}
 figure,.tile,.story,.facts>div,tr{break-inside:avoid}h2,h3{break-after:avoid}
 .scroll{overflow:visible}.grid{min-width:0!important}.stories{grid-template-columns:1fr 1fr}}
)css";

}  // namespace

std::string_view report_style() { return kStyle; }

}  // namespace lab
